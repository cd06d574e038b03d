"""The command `inspect`: the content of a bank or of a graft file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cl_graft.cli.options import AsJson, Quiet, argument
from cl_graft.cli.output import Output, format_score, make_table

if TYPE_CHECKING:
    from cl_graft.banks.inspect import Inspection


def inspect_command(
    path: Annotated[
        Path, argument("BANK", "A bank, a run of grafting, or the file of a single graft.")
    ],
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Show the tasks, regions and sizes of a bank. The model is not loaded.

    [b]Examples[/b]

      cl-graft inspect first/grafting/seed0/bank
    """
    from cl_graft.banks.inspect import inspect_bank, inspect_graft

    output = Output(quiet, as_json)
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
