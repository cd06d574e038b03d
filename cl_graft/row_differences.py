"""Rows of a batch with weights of their own: x·(W + ΔW) as x·W + x·ΔW.

For matrices only, and with ΔW at the coordinates in which the tasks of a batch differ: the columns
of x that they touch are gathered, multiplied by each row's own differences (zero where the
coordinate is another task's) and added where they belong in x·W. Rows may stand in any order.

Against going through the rows task by task, which makes a product a task, this wins where a task
has few tokens. One thread, 768 × 3,072, 236 coordinates a task, against one product for all rows:

    fp32                     8 tasks             32 tasks
    tokens of 32 rows     add   in turn       add   in turn
        32               0.94      1.77      1.07      2.47
       512               1.04      1.24      1.18      1.54
     2,048               1.00      1.06      1.41      1.23
    bf16
        32               1.26      2.66      2.31     10.61
       512               1.46      1.14      2.79      1.62
     2,048               1.57      1.14      2.66      1.38
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from cl_graft.plans import Plan
from cl_graft.row_groups import Span

__all__ = ["RowDifferences", "cheaper_to_add", "is_matrix"]

_FULL_PRECISION, _HALF_PRECISION, _ACCELERATOR = 8.0, 50.0, 1.0
"""Cost of a difference of a token over that of a weight of one more product, fitted on such tables.

That of accelerators, where the number of calls counts, is a guess.
"""


def is_matrix(module: nn.Module) -> bool:
    """Tell whether a module computes x·W + b: `nn.Linear`, or the `Conv1D` of GPT-2."""
    return type(module) is nn.Linear or _is_conv1d(module)


def cheaper_to_add(weight: Tensor, *, differences: int, tokens: int, tasks: int) -> bool:
    """Tell whether adding differences is faster than one product a task.

    Args:
        weight: The matrix.
        differences: Coordinates in which the tasks of the batch differ.
        tokens: Positions of the whole batch.
        tasks: Tasks in the batch.
    """
    cost = _FULL_PRECISION if weight.element_size() > 2 else _HALF_PRECISION
    if weight.device.type != "cpu":
        cost = _ACCELERATOR
    return cost * differences * tokens < (tasks - 1) * weight.numel()


@dataclass(frozen=True, eq=False)
class RowDifferences:
    """What a matrix module adds for each row.

    Attributes:
        columns: The inputs that the differing weights read, shape (C,).
        places: The outputs that they write, shape (C,).
        values: Each row's differences, shape (rows, C).
        bias_places: The outputs whose bias differs, shape (B,).
        bias_values: Each row's differences of it, shape (rows, B).
    """

    columns: Tensor
    places: Tensor
    values: Tensor
    bias_places: Tensor
    bias_values: Tensor

    @classmethod
    def of(
        cls,
        module: nn.Module,
        plans: Mapping[str, Plan],
        spans: Sequence[Span],
        turns: Tensor,
        *,
        prefix: bool,
    ) -> RowDifferences:
        """Lay out the differences between the tasks of a batch.

        Args:
            module: An `is_matrix` module.
            plans: What entries write, by ``"weight"`` and ``"bias"``.
            spans: The entries that each turn adds, in order.
            turns: The turn in which each row is answered, int64, shape (rows,).
            prefix: Whether a turn also has what the turns before it added.
        """
        weight = module.get_parameter("weight")
        index, values = _by_row(plans.get("weight"), spans, turns, like=weight, prefix=prefix)
        bias, bias_values = _by_row(plans.get("bias"), spans, turns, like=weight, prefix=prefix)
        rows, columns = index // weight.shape[1], index % weight.shape[1]
        if _is_conv1d(module):
            rows, columns = columns, rows
        places, order = rows.sort()  # neighbours are added twice as fast
        return cls(columns[order], places, values[:, order], bias, bias_values)

    def add_(self, y: Tensor, x: Tensor) -> Tensor:
        """Add x·ΔW + Δb of each row to y = x·W + b, in place.

        Args:
            y: Shape (rows, …, outputs).
            x: Shape (rows, …, inputs); under autocast of another dtype than y.
        """
        rows = len(x)
        flat = y.view(
            -1, y.shape[-1]
        )  # indexing the last of three dimensions takes 5 times as long
        if len(self.columns):
            part = x.reshape(-1, x.shape[-1]).index_select(1, self.columns)
            part.view(rows, -1, len(self.columns)).mul_(self.values[:, None])
            flat.index_add_(1, self.places, part.to(y.dtype))
        if len(self.bias_places):
            part = self.bias_values[:, None].expand(rows, len(flat) // rows, -1)
            flat.index_add_(1, self.bias_places, part.reshape(len(flat), -1).to(y.dtype))
        return y


def _is_conv1d(module: nn.Module) -> bool:
    kind = type(module)
    return kind.__name__ == "Conv1D" and kind.__module__ == "transformers.pytorch_utils"


def _by_row(
    plan: Plan | None, spans: Sequence[Span], turns: Tensor, *, like: Tensor, prefix: bool
) -> tuple[Tensor, Tensor]:
    """Return the places at which tasks differ, shape (C,), and each row's differences there."""
    if plan is None:
        empty = torch.empty(0, dtype=torch.int64, device=like.device)
        return empty, like.new_empty(len(turns), 0)
    parts = [plan.part(*span) or slice(0, 0) for span in spans]
    places = torch.cat([plan.index[part] for part in parts])
    values = torch.cat([plan.values[part] - plan.base[part] for part in parts])
    sizes = torch.tensor([part.stop - part.start for part in parts])
    turn = torch.arange(len(parts)).repeat_interleave(sizes).to(like.device)
    has = turns[:, None] >= turn if prefix else turns[:, None] == turn
    return places, torch.where(has, values, torch.zeros_like(values))
