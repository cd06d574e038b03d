"""Products of each row of a batch with its own task's weights: x·(W + ΔW) as x·W + x·ΔW.

For matrices only, and with ΔW at the coordinates that set a task apart from what the module
carries: for the rows of each task, the columns of x that they touch are gathered, multiplied by the
differences and added where they belong in x·W.

Against going through the rows task by task, which makes a product a task, this wins where a task
has few tokens: ``benchmarks/performance/row_differences.py`` measures where, and
`cheaper_to_add` tells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from cl_graft.inference.entry_writes import TensorWrites
from cl_graft.inference.row_groups import RowGroup
from cl_graft.training.coordinate_gradient import is_conv1d

_FULL_PRECISION, _HALF_PRECISION, _ACCELERATOR = 16.0, 50.0, 1.0
"""Cost of a difference of a token over that of a weight of one more product, as measured there.

From 512 tokens on it was 9 to 31 in full precision and 26 to 109 in bf16, on two hosts. That of
accelerators, where the number of calls counts, is a guess.
"""


def cheaper_to_add(weight: Tensor, *, differences: int, tasks: int) -> bool:
    """Tell whether adding differences is faster than one product a task.

    Args:
        weight: The matrix.
        differences: Coordinates that are added for each token, over all tokens of the batch.
        tasks: Tasks in the batch.
    """
    cost = _FULL_PRECISION if weight.element_size() > 2 else _HALF_PRECISION
    if weight.device.type != "cpu":
        cost = _ACCELERATOR
    return cost * differences < (tasks - 1) * weight.numel()


_Part = tuple[slice, int]
"""Part of some differences, and the sign with which it is added."""


@dataclass(frozen=True, eq=False)
class Differences:
    """Differences of one tensor.

    Attributes:
        columns: Input features of the differing weights, int64, shape (C,).
        places: Output features of these weights, int64, shape (C,).
        values: Differences, shape (C,).
    """

    columns: Tensor
    places: Tensor
    values: Tensor


@dataclass(frozen=True, eq=False)
class RowDifferences:
    """Differences that a linear layer adds for the rows of each task.

    Attributes:
        groups: Groups of the rows of the batch.
        weight: Differences of the weight, of all tasks.
        bias: Differences of the bias, of all tasks.
        of_weight: Parts of `weight` that the rows of each task get, with a sign: 1 for
            differences that the module lacks, -1 for those that it carries and the rows must not
            have.
        of_bias: Parts of `bias` that they get.
    """

    groups: Sequence[RowGroup]
    weight: Differences
    bias: Differences
    of_weight: Sequence[list[_Part]]
    of_bias: Sequence[list[_Part]]

    @classmethod
    def of(
        cls, module: nn.Module, all_writes: Mapping[str, TensorWrites], groups: Sequence[RowGroup]
    ) -> RowDifferences:
        """Lay out what sets the tasks of a batch apart from what the module carries.

        Args:
            module: A linear layer.
            all_writes: What entries write, by ``"weight"`` and ``"bias"``.
            groups: The groups of the batch.
        """
        weight, of_weight = _differences(
            all_writes.get("weight"),
            groups,
            module,
            width=module.get_parameter("weight").shape[1],
        )
        if is_conv1d(module):
            weight = Differences(weight.places, weight.columns, weight.values)
        bias, of_bias = _differences(all_writes.get("bias"), groups, module, width=1)
        return cls(groups, weight, bias, of_weight, of_bias)

    def add_(self, y: Tensor, x: Tensor) -> Tensor:
        """Add x·ΔW + Δb of each row to y = x·W + b, in place.

        Args:
            y: Shape (rows, …, outputs).
            x: Shape (rows, …, inputs); under autocast of another dtype than y.
        """
        for group, weights, biases in zip(self.groups, self.of_weight, self.of_bias, strict=True):
            rows = group.rows
            own = y[rows]  # a view where the rows stand together
            # Indexing the last of three dimensions takes 5 times as long.
            flat = own.view(-1, y.shape[-1])
            for inside, sign in weights:
                part = x[rows].reshape(-1, x.shape[-1])
                part = part.index_select(1, self.weight.columns[inside])
                part = part.mul_(self.weight.values[inside]).to(y.dtype)
                flat.index_add_(1, self.weight.places[inside], part, alpha=sign)
            for inside, sign in biases:
                part = self.bias.values[inside].to(y.dtype)
                row = part.new_zeros(y.shape[-1])
                flat += row.index_add_(0, self.bias.places[inside], part, alpha=sign)
            if not isinstance(rows, slice):
                y[rows] = own
        return y


def _differences(
    writes: TensorWrites | None, groups: Sequence[RowGroup], module: nn.Module, *, width: int
) -> tuple[Differences, list[list[_Part]]]:
    """Return what entries change in a tensor of rows of a width, and each group's parts of it."""
    parts: list[list[_Part]] = [
        [
            (part, sign)
            for spans, sign in ((group.added, 1), (group.taken, -1))
            for span in spans
            if writes is not None and (part := writes.part(*span)) is not None
        ]
        for group in groups
    ]
    found = [part for own in parts for part, _ in own]
    if writes is None or not found:
        like = module.get_parameter("weight")
        none = like.new_empty(0, dtype=torch.int64)
        return Differences(none, none, like.new_empty(0)), parts
    first = min(part.start for part in found)
    whole = slice(first, max(part.stop for part in found))
    index = writes.index[whole]
    made = Differences(index % width, index // width, writes.values[whole] - writes.base[whole])
    moved = [
        [(slice(part.start - first, part.stop - first), sign) for part, sign in own]
        for own in parts
    ]
    return made, moved
