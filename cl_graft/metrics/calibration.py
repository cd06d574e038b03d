"""Calibration error, the distance of confidence from accuracy, and temperatures that lower it.

Bins follow Guo et al., "On Calibration of Modern Neural Networks" (2017),
https://arxiv.org/abs/1706.04599, section 2: M intervals (lo, hi] of equal width on (0, 1], so that
a confidence of exactly 1.0 is in the last bin. torchmetrics bins [lo, hi) and gives 1.0 a bin of
its own, which yields other numbers on saturated models.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

# How far a row of probabilities may be from summing to one: bfloat16 keeps 8 bits.
_SUM_TOLERANCE = 2e-2

_LOWEST, _HIGHEST = 0.05, 20.0
"""Bounds of a temperature."""

_POINTS = 64
"""Temperatures of a grid that are tried, and one more."""


@dataclass(frozen=True, eq=False)
class ReliabilityBins:
    """Confidence and accuracy by bin of confidence; bin m holds confidences in (m/M, (m+1)/M].

    Attributes:
        counts: Rows in each bin; int64, shape (M,).
        confidence: Mean probability of the predicted class, in [0, 1]; float64, shape (M,). NaN
            where the bin is empty.
        accuracy: Share of right predictions, in [0, 1]; float64, shape (M,). NaN where the bin is
            empty.

    Examples:
        >>> stored = {"counts": [0, 4], "confidence": [None, 0.9], "accuracy": [None, 0.75]}
        >>> round(ReliabilityBins.from_lists(stored).ece, 4)
        0.15
    """

    counts: Tensor
    confidence: Tensor
    accuracy: Tensor

    @classmethod
    def from_lists(cls, stored: Mapping[str, Sequence[float | None]]) -> ReliabilityBins:
        """Make bins of lists by attribute, as results store them; None stands for NaN."""

        def tensor(name: str) -> Tensor:
            values = [math.nan if value is None else value for value in stored[name]]
            return torch.tensor(values, dtype=torch.float64)

        return cls(tensor("counts").long(), tensor("confidence"), tensor("accuracy"))

    @property
    def ece(self) -> float:
        """Expected calibration error of these bins, in [0, 1]."""
        filled = self.counts > 0
        gaps = (self.accuracy[filled] - self.confidence[filled]).abs()
        return float((self.counts[filled] * gaps).sum() / self.counts.sum())


def ece(probabilities: Tensor, labels: Tensor, *, bins: int = 15) -> float:
    """Return the expected calibration error, as a fraction in [0, 1].

    ECE = Σ_m |B_m|/n · |acc(B_m) − conf(B_m)| (Guo et al. 2017, eq. 3). See `reliability_bins` for
    the arguments and the errors.

    Examples:
        >>> probabilities = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]])
        >>> round(ece(probabilities, torch.tensor([0, 0, 0])), 2)
        0.33
    """
    return reliability_bins(probabilities, labels, bins=bins).ece


def reliability_bins(probabilities: Tensor, labels: Tensor, *, bins: int = 15) -> ReliabilityBins:
    """Sort predictions into bins by the probability of the predicted class.

    Args:
        probabilities: Class probabilities, not logits; floating, shape (n, K), rows sum to 1. Of
            equal probabilities the first class is the prediction.
        labels: Right classes in [0, K); integers, shape (n,).
        bins: Number of bins M, at least 1.

    Raises:
        ValueError: If shapes do not fit, there are no rows, a value is outside its range or `bins`
            is below 1.

    Examples:
        >>> probabilities = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]])
        >>> reliability_bins(probabilities, torch.tensor([0, 0, 0]), bins=2).counts
        tensor([0, 3])
    """
    _check(probabilities, labels, bins)
    if probabilities.dtype in (torch.float16, torch.bfloat16):
        probabilities = probabilities.float()
    confidence = probabilities.amax(dim=1).clamp(max=1)  # rounding may have gone above
    right = probabilities.argmax(dim=1) == labels.to(probabilities.device)
    inner = torch.arange(1, bins, dtype=torch.float64, device=confidence.device) / bins
    index = torch.bucketize(confidence, inner.to(confidence.dtype))
    counts = torch.bincount(index, minlength=bins)
    return ReliabilityBins(
        counts=counts,
        confidence=torch.bincount(index, confidence.double(), minlength=bins) / counts,
        accuracy=torch.bincount(index, right.double(), minlength=bins) / counts,
    )


@dataclass(frozen=True)
class Temperature:
    """A fitted temperature, and the calibration error before and after it.

    Attributes:
        value: T, in [0.05, 20].
        rows: Number of rows that it was fitted on.
        ece_before: Their expected calibration error at T = 1, in [0, 1].
        ece_after: The same at T.

    Examples:
        >>> fitted = Temperature(2.0, rows=64, ece_before=0.12, ece_after=0.03)
        >>> (torch.tensor([3.0, 1.0]) / fitted.value).softmax(dim=0)
        tensor([0.7311, 0.2689])
    """

    value: float
    rows: int
    ece_before: float
    ece_after: float


def fit_temperature(logits: Tensor, labels: Tensor) -> Temperature | None:
    """Fit a task's temperature by the likelihood of its labels, on rows that were not trained on.

    T > 0 divides all logits of a task: softmax(z / T) is closer to the shares of right answers, and
    no answer changes (Guo et al. 2017, section 4.2).

    Minimises Σ −log softmax(z/T)[y] + ½ log² T over the rows. The last term, a normal prior on
    log T, is worth about one row: without it, rows that are all answered rightly would have T → 0,
    and full confidence in every answer.

    Args:
        logits: Floating, shape (n, K).
        labels: Right classes in [0, K), shape (n,).

    Returns:
        None where nothing can be fitted: no rows, a regression, answers at tokens or in text, a
        single class, or logits that are not finite.

    Examples:
        >>> logits = torch.tensor([[4.0, 0.0], [0.0, 4.0], [4.0, 0.0], [4.0, 0.0]])
        >>> fitted = fit_temperature(logits, torch.tensor([0, 1, 0, 1]))
        >>> fitted.value > 1  # three of four right, and more confident than that
        True
    """
    if (
        not len(labels)
        or max(logits.ndim - 1, labels.ndim) > 1
        or logits.shape[1] < 2
        or labels.is_floating_point()
    ):
        return None
    scaled = logits.detach().double().cpu()
    right = labels.detach().cpu()
    if not bool(scaled.isfinite().all()):
        return None
    low, high = math.log(_LOWEST), math.log(_HIGHEST)
    best = 0.0
    for _ in range(2):  # a coarse grid, then a fine one around its best point
        step = (high - low) / _POINTS
        points = [low + step * number for number in range(_POINTS + 1)]
        best = min(points, key=lambda point: _loss(scaled, right, point))
        low, high = max(low, best - step), min(high, best + step)
    value = math.exp(best)
    before, after = (ece((scaled / t).softmax(1), right) for t in (1.0, value))
    return Temperature(value, len(right), before, after)


def _loss(logits: Tensor, labels: Tensor, log_temperature: float) -> float:
    chances = (logits * math.exp(-log_temperature)).log_softmax(1)
    return 0.5 * log_temperature**2 - float(chances.gather(1, labels[:, None]).sum())


def _check(probabilities: Tensor, labels: Tensor, bins: int) -> None:
    if bins < 1:
        raise ValueError(f"bins must be at least 1, got {bins}")
    if probabilities.ndim != 2 or labels.shape != probabilities.shape[:1]:
        raise ValueError(
            "expected probabilities of shape (n, K) and labels of shape (n,), "
            f"got {tuple(probabilities.shape)} and {tuple(labels.shape)}"
        )
    n, classes = probabilities.shape
    if n == 0 or classes == 0:
        raise ValueError(f"calibration needs at least one row and one class, got {n} and {classes}")
    if not probabilities.is_floating_point() or labels.is_floating_point():
        raise ValueError(
            "expected floating probabilities and integer labels, "
            f"got {probabilities.dtype} and {labels.dtype}"
        )
    low = probabilities.min().item()
    off = (probabilities.double().sum(dim=1) - 1).abs().max().item()
    if not (low >= 0 and off <= _SUM_TOLERANCE):
        raise ValueError(
            "probabilities must be at least 0 and sum to 1 a row, got a lowest value of "
            f"{low:g} and a row {off:g} away from 1; were logits passed without softmax?"
        )
    first, last = int(labels.min()), int(labels.max())
    if first < 0 or last >= classes:
        raise ValueError(f"labels must be in [0, {classes}), got values in [{first}, {last}]")
