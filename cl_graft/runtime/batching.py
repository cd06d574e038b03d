"""Orders of batches: which rows a step sees, shuffled by a seed or grouped by length.

A batch is computed at the length of its longest row, so rows of similar length share batches. Which
rows share a batch decides the last bits of their logits: every order here is a function of lengths
and seed alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from cl_graft.runtime.seeding import generator, permutation

EVAL_BATCH = 64
"""Rows per batch in evaluation, where no setting says otherwise."""
WINDOW = 16
"""Batches whose rows are exchanged when training batches are grouped by length."""


class BatchOrder:
    """The batches of a phase: the rows of any step, without walking through the steps before it.

    Rows are shuffled anew in every epoch, by `seed` and `keys`. The last batch of an epoch is
    filled from the next epoch's shuffle, so all batches are equally large. With `lengths`, of shape
    (rows,), batches are made of rows of similar length.
    """

    def __init__(
        self, rows: int, batch_size: int, seed: int, *keys: str | int, lengths: Tensor | None = None
    ) -> None:
        if rows < 1 or batch_size < 1:
            raise ValueError(f"rows and batch_size must be at least 1, got {rows} and {batch_size}")
        self.rows = rows
        self.batch_size = batch_size
        self._seed = seed
        self._keys = keys
        self._lengths = lengths
        self._shuffles: dict[int, Tensor] = {}

    def __call__(self, step: int) -> list[int]:
        """Return the `batch_size` row numbers of batch `step` (from 0)."""
        first = step * self.batch_size
        numbers = range(first, first + self.batch_size)
        return [int(self._shuffle(n // self.rows)[n % self.rows]) for n in numbers]

    def _shuffle(self, epoch: int) -> Tensor:
        if epoch not in self._shuffles:
            self._shuffles = {e: s for e, s in self._shuffles.items() if e >= epoch - 1}
            self._shuffles[epoch] = self._draw(epoch)
        return self._shuffles[epoch]

    def _draw(self, epoch: int) -> Tensor:
        order = permutation(self.rows, self._seed, *self._keys, "epoch", epoch)
        if self._lengths is None:
            return order
        # The rows that fill the last batch of the epoch before stand first.
        begun = min(-epoch * self.rows % self.batch_size, self.rows)
        draws = generator(self._seed, *self._keys, "groups", epoch)
        rest = group_by_length(
            order[begun:], self._lengths, batch_size=self.batch_size, generator=draws
        )
        return torch.cat([order[:begun], rest])


def join_rows(parts: Sequence[Tensor], *, fill: float) -> Tensor:
    """Join rows of tensors, (n, …), filling the second axis of those that are narrower there."""
    if len({part.shape[1:] for part in parts}) > 1:
        widest = max(part.shape[1] for part in parts)
        behind = (0, 0) * (parts[0].ndim - 2)
        parts = [F.pad(p, (*behind, 0, widest - p.shape[1]), value=fill) for p in parts]
    return torch.cat(list(parts))


def text_lengths(inputs: Tensor) -> Tensor | None:
    """Count the tokens of encoded texts, (n, 2, L); None if these are no encoded texts."""
    if inputs.dim() != 3 or inputs.shape[1] != 2 or inputs.is_floating_point():
        return None
    return (inputs[:, 1] != 0).sum(1)


def sort_by_length(lengths: Tensor) -> Tensor:
    """Order rows from the longest to the shortest; of equal ones the earlier comes first.

    Whatever memory a pass needs, its first batch asks for.
    """
    return torch.argsort(lengths, descending=True, stable=True)


def group_by_length(
    order: Tensor, lengths: Tensor, *, batch_size: int, generator: torch.Generator
) -> Tensor:
    """Regroup a shuffled order into batches of similar length, and shuffle the batches.

    The order is cut into windows of `WINDOW` batches, each window is ordered by length, and its
    batches are shuffled among all. Rows beyond the last whole batch stay last.
    """
    whole = len(order) // batch_size * batch_size
    windows = order[:whole].split(WINDOW * batch_size)
    batches = torch.cat([w[sort_by_length(lengths[w])] for w in windows]).view(-1, batch_size)
    shuffled = batches[torch.randperm(len(batches), generator=generator)]
    return torch.cat([shuffled.flatten(), order[whole:]])
