"""Measures of the papers: relative gain, top probabilities, and the spread over repeated runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cl_graft.runtime.seeding import permutation


def relative_gain(score: float, *, base: float, full: float) -> float | None:
    """Return (P_γ − P_0) / (P_1 − P_0) (Panigrahi et al., 2023, Eq. 5).

    https://arxiv.org/abs/2302.06600. 0 is the base, 1 the fully fine-tuned model; outside of
    [0, 1] a graft is worse than the base, or better than the full model.
    """
    return (score - base) / (full - base) if full > base else None


def top_probability_histogram(probabilities: Tensor, *, bins: int = 20) -> Tensor:
    """Count rows by the probability of the predicted class.

    It is the histogram of Panigrahi et al., 2023, Fig. 6 (https://arxiv.org/abs/2302.06600).
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


@dataclass(frozen=True)
class Stability:
    """Scores of repeated runs."""

    mean: float
    deviation: float
    runs: int


def stability(scores: Sequence[float]) -> Stability:
    """Summarise the scores of repeated runs (Fu et al., 2023, Tables 1 and 2).

    https://arxiv.org/abs/2211.15583.
    """
    count = len(scores)
    if not count:
        raise ValueError("stability needs the score of at least one run, got none")
    mean = math.fsum(scores) / count
    spread = math.fsum((score - mean) ** 2 for score in scores)
    return Stability(mean, math.sqrt(spread / (count - 1)) if count > 1 else 0.0, count)


def without_a_share(rows: int, *, share: float = 0.1, seed: int) -> list[int]:
    """Return which rows remain where a share is left out at random, ascending.

    The data perturbation of Fu et al., 2023, Table 2 (https://arxiv.org/abs/2211.15583), which
    leaves out 10 %.
    """
    left = rows - round(share * rows)
    if not 0 <= share < 1 or left < 1:
        raise ValueError(f"share must be in [0, 1) and leave a row of {rows}, got {share}")
    return sorted(permutation(rows, seed, "perturbation").tolist()[:left])
