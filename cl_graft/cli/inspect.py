"""The command `inspect`: the content of a bank or of a graft file, and the repair of a bank."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cl_graft.cli.options import AsJson, Quiet, argument, flag
from cl_graft.cli.output import Output, format_score, make_table

if TYPE_CHECKING:
    from cl_graft.banks.inspect import Inspection
    from cl_graft.storage.repair import Repaired


def inspect_command(
    path: Annotated[
        Path, argument("BANK", "A bank, a run of grafting, or the file of a single graft.")
    ],
    repair: Annotated[
        bool,
        flag(
            "--repair",
            "Delete leftovers of interrupted writes, and list the entries that are whole.",
        ),
    ] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Show the tasks, regions and sizes of a bank. The model is not loaded.

    With --repair, files that bank.json does not list are deleted. If entries or bank.json are
    damaged or missing, bank.json is written again from the entries that are whole, and the files of
    other entries are moved to removed/ in the bank. The results of the bank's run then name the
    repaired bank.

    Exit code: 0 shown, or repaired; 1 repaired, but an entry is lost; 2 it cannot be read.

    [b]Examples[/b]

      cl-graft inspect first/grafting/seed0/bank

      cl-graft inspect first/grafting/seed0/bank --repair
    """
    from cl_graft.banks.inspect import inspect_bank, inspect_graft, repair_folder

    output = Output(quiet, as_json)
    if repair:
        repaired = repair_folder(path)
        output.result(repaired, *_describe_repair(repaired))
        if repaired.faults:
            raise typer.Exit(1)
        return
    if path.is_file():
        graft = inspect_graft(path)
        output.result(
            graft,
            f"{graft.path}: graft of {graft.task!r}, {graft.region_size:,} of "
            f"{graft.coordinates:,} coordinates ({graft.density:.3%}), {graft.dtype}, "
            f"{graft.bytes:,} bytes\n"
            f"base {graft.model} ({graft.fingerprint[:12]}…)",
        )
        return
    bank = inspect_bank(path)
    output.result(bank, *_describe_bank(bank))


def _describe_bank(found: Inspection) -> list[Any]:
    """Return a bank's base and size, and the table of its entries."""
    rows: list[tuple[object, ...]] = [
        (
            entry.position,
            entry.task,
            f"{entry.label}{'' if entry.answers else ' (replaced)'}",
            entry.answer,
            f"{entry.region_size:,}",
            f"{entry.density:.3%}",
            f"{entry.owned:,}",
            f"{entry.owned_before:.1%}",
            f"{entry.bytes:,}",
            f"{entry.head_bytes:,}",
            format_score(entry.metadata.get("trained_dev")),
        )
        for entry in found.entries
    ]
    columns = (
        "entry", "task", "label", "answers", "region", "density", "owned", "owned before", "bytes",
        "of them head", "dev",
    )  # fmt: skip
    if any(entry.builds_on is not None for entry in found.entries):
        columns = (*columns, "builds on")
        for number, (row, entry) in enumerate(zip(rows, found.entries, strict=True)):
            under = range(number) if entry.builds_on is None else entry.builds_on
            rows[number] = (*row, ", ".join(map(str, under)) or "base")
    return [
        f"base {found.model} ({found.fingerprint[:12]}…, {found.dtype}), {found.mode} mode",
        f"{found.owned:,} of {found.coordinates:,} coordinates owned, {found.bytes:,} bytes",
        make_table(str(found.bank), columns, rows),
    ]


def _describe_repair(found: Repaired) -> list[str]:
    """Say in sentences what was done to a bank's folder."""
    lines = [f"{found.bank}: {found.entries} entries"]
    if found.deleted:
        lines.append(f"Deleted, as bank.json does not list them: {', '.join(found.deleted)}")
    if found.rebuilt:
        lines.append("bank.json was written anew from the entries that are whole.")
    if found.removed:
        lines.append(f"Moved to {found.bank}/removed: {', '.join(found.removed)}")
    lines += [f"LOST: {sentence}" for sentence in found.faults]
    if not (found.deleted or found.rebuilt):
        lines.append("Nothing had to be done.")
    return lines
