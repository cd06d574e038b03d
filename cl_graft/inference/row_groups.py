"""The rows of a batch, grouped by task, and the two ways in which a module computes them.

Either what the next task changes is written into the module's weights and its rows are computed, or
a matrix multiplies all rows and each gets its task's differences: x·(W + ΔW) as x·W + x·ΔW. Where a
coordinate has one owner, a batch begins and ends at the entry of its middle row (`first_entry`),
from which the others differ least; where entries share coordinates, at the base.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from cl_graft.inference.entry_writes import Spans, TensorWrites, answer_spans, apart, subtract
from cl_graft.inference.task_switch import Switch
from cl_graft.training.coordinate_gradient import is_conv1d

Rows = slice | Tensor
"""Some rows of a batch: a slice where they stand together, else their numbers."""

_FULL_PRECISION, _HALF_PRECISION, _ACCELERATOR = 16.0, 50.0, 1.0
"""Cost of a difference of a token over that of a weight of one more product.

``benchmarks/performance/row_differences.py`` measured 9 to 31 in full precision and 26 to 109 in
bf16 from 512 tokens on, on two hosts. That of accelerators, where calls count, is a guess.
"""


@dataclass(frozen=True, eq=False)
class RowGroup:
    """The rows of one task in a batch, and what a module writes for them.

    Attributes:
        rows: Rows of the task.
        undo: Entries whose coordinates go back to the base first.
        write: Entries whose values are written then.
        added: Entries that the rows have and the module does not carry.
        taken: Entries that the module carries and the rows do not have.
        back: Entries whose values are to be put back in the end.
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

    Of two in the middle it is the earlier one: to add differences rounds less than to take them
    away. Where entries share coordinates it is the base, unless all rows have one entry.
    """
    if switch.shares and len(set(positions)) > 1:
        return None
    return sorted(positions, key=_count)[(len(positions) - 1) // 2]


def group_rows(
    switch: Switch, positions: Sequence[int | None], *, device: torch.device
) -> list[RowGroup]:
    """Gather the rows of each entry: the base's first, then those of the entries in order.

    Every group undoes the entries that it lacks, and writes those that were not there; where
    entries share coordinates, it writes all of its own in order.
    """
    bank = switch.bank
    by_entry: dict[int, list[int]] = {}
    for row, position in enumerate(positions):
        by_entry.setdefault(_count(position), []).append(row)
    here = answer_spans(bank, first_entry(switch, positions))
    groups: list[RowGroup] = []
    before, restored = here, ()
    for count, rows in sorted(by_entry.items()):
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
    """Compute the rows group by group by `whole`, with each one's weights, and put these back."""

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


def cheaper_to_add(weight: Tensor, *, differences: int, tasks: int) -> bool:
    """Tell whether adding differences of all tokens is faster than one product a task."""
    cost = _FULL_PRECISION if weight.element_size() > 2 else _HALF_PRECISION
    if weight.device.type != "cpu":
        cost = _ACCELERATOR
    return cost * differences < (tasks - 1) * weight.numel()


def add_differences_(
    y: Tensor,
    x: Tensor,
    module: nn.Module,
    all_writes: Mapping[str, TensorWrites],
    groups: Sequence[RowGroup],
) -> Tensor:
    """Add x·ΔW + Δb of each row to a linear layer's y = x·W + b, in place.

    The columns of x, which may have another dtype than y, are gathered where ΔW touches them.
    """
    width = module.get_parameter("weight").shape[1]
    index, weight, of_weight = _differences(all_writes.get("weight"), groups)
    columns, outputs = index % width, index // width
    if is_conv1d(module):
        columns, outputs = outputs, columns
    index, bias, of_bias = _differences(all_writes.get("bias"), groups)
    for group, weights, biases in zip(groups, of_weight, of_bias, strict=True):
        rows = group.rows
        own = y[rows]  # a view where the rows stand together
        # Indexing the last of three dimensions takes 5 times as long.
        flat = own.view(-1, y.shape[-1])
        for inside, sign in weights:
            part = x[rows].reshape(-1, x.shape[-1]).index_select(1, columns[inside])
            part = part.mul_(weight[inside]).to(y.dtype)
            flat.index_add_(1, outputs[inside], part, alpha=sign)
        for inside, sign in biases:
            part = bias[inside].to(y.dtype)
            row = part.new_zeros(y.shape[-1])
            flat += row.index_add_(0, index[inside], part, alpha=sign)
        if not isinstance(rows, slice):
            y[rows] = own
    return y


def _differences(
    writes: TensorWrites | None, groups: Sequence[RowGroup]
) -> tuple[Tensor, Tensor, list[list[tuple[slice, int]]]]:
    """Return the coordinates and differences of a tensor, and each group's parts of them.

    The sign of a part is 1 for what the module lacks, -1 for what it carries and the rows must not
    have.
    """
    parts = [
        [
            (part, sign)
            for spans, sign in ((group.added, 1), (group.taken, -1))
            for span in spans
            if writes is not None and (part := writes.part(*span)) is not None
        ]
        for group in groups
    ]
    every = [part for own in parts for part, _ in own]
    if writes is None or not every:
        return torch.empty(0, dtype=torch.int64), torch.empty(0), parts
    first = min(part.start for part in every)
    whole = slice(first, max(part.stop for part in every))
    moved = [
        [(slice(part.start - first, part.stop - first), sign) for part, sign in own]
        for own in parts
    ]
    return writes.index[whole], writes.values[whole] - writes.base[whole], moved


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
