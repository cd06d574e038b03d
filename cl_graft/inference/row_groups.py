"""The rows of a batch, grouped by task and computed with the weights of each.

What the next task changes is written into the module's weights, the task's rows are computed, and
in the end the weights are put back: the weights are those of switching, bit for bit. In prefix mode
a batch begins and ends at the entry of its middle row (`median_entry`), from which the others
differ least.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cl_graft.inference.entry_writes import TensorWrites

__all__ = ["RowGroup", "Rows", "Span", "compute_by_group", "group_rows", "median_entry"]

Rows = slice | Tensor
"""Some rows of a batch: a slice where they stand together, else their numbers."""

Span = tuple[int, int]
"""Entries of a bank, from and to (exclusive)."""


@dataclass(frozen=True, eq=False)
class RowGroup:
    """The rows of one task in a batch, and what a module writes for them.

    Attributes:
        rows: Rows of the task.
        undo: Entries whose coordinates go back to the base first.
        write: Entries whose values are written then.
        difference: Entries in which the rows differ from what the module carries.
        sign: 1 if the rows have them and the module does not; -1 if it is the other way round.
    """

    rows: Rows
    undo: Span
    write: Span
    difference: Span
    sign: int = 1

    @property
    def size(self) -> int:
        """Number of rows."""
        rows = self.rows
        return rows.stop - rows.start if isinstance(rows, slice) else len(rows)


def median_entry(positions: Sequence[int | None]) -> int | None:
    """Return the entry of the row in the middle, once rows are in the order of their entries.

    Of two it is the earlier one: to add differences rounds less than to take them away.
    """
    return sorted(positions, key=_count)[(len(positions) - 1) // 2]


def group_rows(
    positions: Sequence[int | None], *, prefix: bool, device: torch.device
) -> list[RowGroup]:
    """Gather the rows of each entry: the base's first, then those of the entries in order.

    In prefix mode the module carries the `median_entry`. The first group undoes the entries that it
    lacks, and every later group adds entries to those before it. In isolated mode every group
    undoes the one before, starting from the base.
    """
    found: dict[int, list[int]] = {}
    for row, position in enumerate(positions):
        found.setdefault(_count(position), []).append(row)
    here = _count(median_entry(positions))
    groups: list[RowGroup] = []
    for count, rows in sorted(found.items()):
        together = rows[-1] - rows[0] + 1 == len(rows)
        where = slice(rows[0], rows[-1] + 1) if together else torch.tensor(rows, device=device)
        before = groups[-1].write if groups else (0, 0)
        if prefix:
            undo = (0, 0) if groups else (count, here)
            write = before[1] if groups else count, count
            difference, sign = ((here, count), 1) if count > here else ((count, here), -1)
            groups.append(RowGroup(where, undo, write, difference, sign))
        else:
            write = max(count - 1, 0), count
            groups.append(RowGroup(where, before, write, write))
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

    def write_(span: Span, *, base: bool) -> None:
        for tensor, writes in tensors:
            writes.write_(tensor, *span, base=base)

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
        write_(groups[0].undo, base=False)
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
