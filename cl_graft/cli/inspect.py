"""The command `inspect`: the content of a bank or of a graft file."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cl_graft.cli.options import AsJson, Quiet, argument
from cl_graft.cli.output import Output, format_score, make_table
from cl_graft.runtime.byte_sizes import decimal_bytes

if TYPE_CHECKING:
    from cl_graft.banks.inspect import InspectedEntry, Inspection


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


def _describe_bank(bank: Inspection) -> list[Any]:
    """Return a bank's base and size, and the table of its entries, a line each."""
    columns = {
        "entry": [entry.position for entry in bank.entries],
        "task": [entry.task for entry in bank.entries],
        "answers": [_describe_answers(entry, bank) for entry in bank.entries],
        "weights": [f"{entry.owned:,}" for entry in bank.entries],
        "overlap": [f"{entry.owned_before:.1%}" for entry in bank.entries],
        "size": [decimal_bytes(entry.bytes) for entry in bank.entries],
        "dev": [format_score(entry.metadata.get("trained_dev")) for entry in bank.entries],
        "builds on": [
            "" if entry.builds_on is None else _join_ranges(entry.builds_on) or "base"
            for entry in bank.entries
        ],
    }
    empty = {
        "overlap": not any(entry.owned_before for entry in bank.entries),
        "builds on": all(entry.builds_on is None for entry in bank.entries),
    }
    columns = {name: cells for name, cells in columns.items() if not empty.get(name)}
    mode = "builds on the earlier ones" if bank.mode == "prefix" else "stands alone"
    return [
        f"base {bank.model} ({bank.fingerprint[:12]}…, {bank.dtype}); each task {mode} "
        f"({bank.mode} mode)",
        f"{bank.owned:,} of {bank.coordinates:,} weights belong to tasks "
        f"({bank.owned / bank.coordinates:.2%}); {decimal_bytes(bank.bytes)}",
        make_table(
            str(bank.bank), list(columns), list(zip(*columns.values(), strict=True)), cut="answers"
        ),
    ]


def _describe_answers(entry: InspectedEntry, bank: Inspection) -> str:
    """Say what an entry answers, labels after their number, or which entry replaced it."""
    if not entry.answers:
        return f"replaced by {max(e.position for e in bank.entries if e.label == entry.label)}"
    many = len(entry.label_names) > 2 and entry.answer == ", ".join(entry.label_names)
    return f"{len(entry.label_names)}: {entry.answer}" if many else entry.answer


def _join_ranges(numbers: Sequence[int]) -> str:
    """Write increasing numbers as ranges: ``"0-3, 5"``."""
    runs = groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])
    ends = [(members[0][1], members[-1][1]) for _, run in runs if (members := list(run))]
    return ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in ends)
