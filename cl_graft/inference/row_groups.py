"""The rows of a batch, grouped by task and computed with the weights of each.

What the next task changes is written into the module's weights, the task's rows are computed, and
in the end the weights are put back: the weights are those of switching, bit for bit. Where a
coordinate has one owner, a batch begins and ends at the entry of its middle row (`first_entry`),
from which the others differ least; where entries share coordinates, at the base.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cl_graft.inference.entry_spans import Spans, answer_spans, apart, subtract
from cl_graft.inference.entry_writes import TensorWrites
from cl_graft.inference.task_switch import Switch

Rows = slice | Tensor
"""Some rows of a batch: a slice where they stand together, else their numbers."""


@dataclass(frozen=True, eq=False)
class RowGroup:
    """The rows of one task in a batch, and what a module writes for them.

    Attributes:
        rows: Rows of the task.
        undo: Entries whose coordinates go back to the base first.
        write: Entries whose values are written then.
        added: Entries that the rows have and the module does not carry.
        taken: Entries that the module carries and the rows do not have.
        back: Entries whose values are to be put back for the module in the end.
        adds_up: Whether no coordinate is in two of the entries that are added or taken.
    """

    rows: Rows
    undo: Spans
    write: Spans
    added: Spans
    taken: Spans
    back: Spans
    adds_up: bool = True

    @property
    def size(self) -> int:
        """Number of rows."""
        rows = self.rows
        return rows.stop - rows.start if isinstance(rows, slice) else len(rows)


def first_entry(switch: Switch, positions: Sequence[int | None]) -> int | None:
    """Return the entry from which a batch begins: that of the row in the middle, or the base.

    Rows are in the order of their entries then. Of two in the middle it is the earlier one: to add
    differences rounds less than to take them away. Where entries share coordinates it is the base,
    unless all rows have one entry.
    """
    if switch.shares and len(set(positions)) > 1:
        return None
    return sorted(positions, key=_count)[(len(positions) - 1) // 2]


def group_rows(
    switch: Switch, positions: Sequence[int | None], *, device: torch.device
) -> list[RowGroup]:
    """Gather the rows of each entry: the base's first, then those of the entries in order.

    The module carries the `first_entry`. Every group undoes the entries that it lacks, and writes
    those that were not there; where entries share coordinates, it writes all of its own in order.
    """
    bank = switch.bank
    found: dict[int, list[int]] = {}
    for row, position in enumerate(positions):
        found.setdefault(_count(position), []).append(row)
    here = answer_spans(bank, first_entry(switch, positions))
    groups: list[RowGroup] = []
    before, restored = here, ()
    for count, rows in sorted(found.items()):
        position = count - 1 if count else None
        mine = answer_spans(bank, position)
        together = rows[-1] - rows[0] + 1 == len(rows)
        where = slice(rows[0], rows[-1] + 1) if together else torch.tensor(rows, device=device)
        taken = subtract(here, mine)
        groups.append(
            RowGroup(
                where,
                undo=subtract(before, mine),
                write=apart(mine) if switch.shares else subtract(mine, before),
                added=subtract(mine, here),
                taken=taken,
                back=subtract(taken, restored),
                adds_up=position is None or switch.adds_up(position),
            )
        )
        before, restored = mine, tuple(sorted((*restored, *groups[-1].back)))
    return groups


def compute_by_group(
    whole: Callable[[Tensor], Tensor],
    x: Tensor,
    groups: Sequence[RowGroup],
    tensors: Sequence[tuple[Tensor, TensorWrites]],
) -> Tensor:
    """Compute the rows group by group, with each one's weights, and put the weights back.

    Args:
        whole: Function of some rows to what the module computes of them: one tensor, rows first.
        x: Input of the module, rows first.
        groups: The groups and what is written for them.
        tensors: The module's parameters, flat, and what entries write into them.

    Returns:
        What the module makes of all rows, rows first.
    """

    def write_(spans: Spans, *, base: bool) -> None:
        for tensor, writes in tensors:
            for low, high in spans:
                writes.write_(tensor, low, high, base=base)

    parts: list[Tensor] = []
    cache = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)  # it would keep the first task's weights
    try:
        for group in groups:
            write_(group.undo, base=True)
            write_(group.write, base=False)
            parts.append(whole(x[group.rows]))
    finally:
        torch.set_autocast_cache_enabled(cache)
        for group in groups:
            write_(group.write, base=True)
        for group in groups:
            write_(group.back, base=False)
    return _join_parts(parts, [group.rows for group in groups], rows=len(x))


def _join_parts(parts: list[Tensor], places: list[Rows], *, rows: int) -> Tensor:
    """Put the parts of a batch where their rows stand."""
    starts = [place.start for place in places if isinstance(place, slice)]
    if len(starts) == len(parts):
        return torch.cat([parts[i] for i in sorted(range(len(parts)), key=starts.__getitem__)])
    joined = parts[0].new_empty(rows, *parts[0].shape[1:])
    for part, place in zip(parts, places, strict=True):
        joined[place] = part
    return joined


def _count(position: int | None) -> int:
    """Return how many entries there are up to one."""
    return 0 if position is None else position + 1
