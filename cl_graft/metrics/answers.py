"""What two models' answers, or one model's confidence, look like on the same rows."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["agreement", "top_probability_histogram"]


def agreement(first: Tensor, second: Tensor) -> float:
    """Return the share of rows on which two models predict the same class, in [0, 1].

    The agreement of a grafted model with the fine-tuned one is that of Panigrahi et al., 2023,
    Table 2 (https://arxiv.org/abs/2302.06600).

    Args:
        first: Logits or probabilities, of shape (n, K); of equal ones the first class counts.
        second: The other model's, of the same shape.

    Raises:
        ValueError: If shapes differ, or there are no rows.
    """
    if first.ndim != 2 or first.shape != second.shape or 0 in first.shape:
        raise ValueError(
            "expected two tensors of one shape (n, K) with at least one row, "
            f"got {tuple(first.shape)} and {tuple(second.shape)}"
        )
    return float((first.argmax(dim=1) == second.argmax(dim=1)).double().mean())


def top_probability_histogram(probabilities: Tensor, *, bins: int = 20) -> Tensor:
    """Count rows by the probability of the predicted class.

    It is the histogram of Panigrahi et al., 2023, Fig. 6 (https://arxiv.org/abs/2302.06600).

    Args:
        probabilities: Class probabilities, of shape (n, K).
        bins: Number of bins of equal width on [0, 1], at least 1; 1 falls into the last one.

    Returns:
        Counts, int64, of shape (bins,).

    Raises:
        ValueError: If the shape does not fit, a value is outside [0, 1] or `bins` is below 1.
    """
    if bins < 1 or probabilities.ndim != 2 or 0 in probabilities.shape:
        raise ValueError(
            "expected probabilities of shape (n, K) with at least one row and at least one bin, "
            f"got {tuple(probabilities.shape)} and {bins}"
        )
    top = probabilities.double().amax(dim=1)
    if not (float(top.min()) >= 0 and float(top.max()) <= 1 + 1e-6):
        raise ValueError("probabilities must be in [0, 1]; were logits passed without softmax?")
    place = (top * bins).long().clamp(max=bins - 1)
    return torch.bincount(place, minlength=bins)
