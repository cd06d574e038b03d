"""Batches of rows of similar length: less padding for the same rows.

A batch is computed at the length of its longest row. Rows in the order of the data make nearly
every batch as long as the longest rows there are; rows in the order of their lengths do not.
Padding that is not computed cannot change a prediction, but it changes float rounding: which rows
share a batch decides the last bits of their logits. So every order here is a function of lengths
and seed alone.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["WINDOW", "group_by_length", "sort_by_length", "text_lengths"]

WINDOW = 16
"""Batches whose rows are exchanged when training batches are grouped by length."""


def text_lengths(inputs: Tensor) -> Tensor | None:
    """Count the tokens of encoded texts; None if these are no encoded texts.

    Args:
        inputs: Of text, integers of shape (n, 2, L): token ids, and 0 for padding.

    Returns:
        int64 of shape (n,).
    """
    if inputs.dim() != 3 or inputs.shape[1] != 2 or inputs.is_floating_point():
        return None
    return (inputs[:, 1] != 0).sum(1)


def sort_by_length(lengths: Tensor) -> Tensor:
    """Order rows from the longest to the shortest; of equal ones the earlier comes first.

    The longest come first so that whatever memory a pass needs, its first batch asks for.

    Args:
        lengths: Of shape (n,).

    Returns:
        Row numbers, int64 of shape (n,).
    """
    return torch.argsort(lengths, descending=True, stable=True)


def group_by_length(
    order: Tensor, lengths: Tensor, *, batch_size: int, generator: torch.Generator
) -> Tensor:
    """Regroup a shuffled order into batches of similar length, and shuffle the batches.

    The order is cut into windows of `WINDOW` batches, each window is ordered by length, and its
    batches are shuffled among all. So a batch still holds random rows of a random window; what it
    no longer holds are rows of very different length. Rows beyond the last whole batch stay last.

    Args:
        order: Row numbers, int64 of shape (n,).
        lengths: Length of every row.
        batch_size: Rows a batch.
        generator: Shuffles the batches.

    Returns:
        The same row numbers, int64 of shape (n,).
    """
    whole = len(order) // batch_size * batch_size
    windows = order[:whole].split(WINDOW * batch_size)
    batches = torch.cat([w[sort_by_length(lengths[w])] for w in windows]).view(-1, batch_size)
    shuffled = batches[torch.randperm(len(batches), generator=generator)]
    return torch.cat([shuffled.flatten(), order[whole:]])
