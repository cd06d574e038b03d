"""Temperature scaling: confidence that says how often an answer is right.

One number T > 0 divides all logits of a task: softmax(z / T) is closer to the shares of right
answers, and no answer changes (Guo et al., "On Calibration of Modern Neural Networks", 2017,
https://arxiv.org/abs/1706.04599, section 4.2). It is fitted on rows that were not trained on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from cl_graft.metrics.calibration import ece

__all__ = ["Temperature", "fit_temperature"]

_LOWEST, _HIGHEST = 0.05, 20.0
_POINTS = 64


@dataclass(frozen=True)
class Temperature:
    """What was fitted, and what it changed on the rows that it was fitted on.

    Attributes:
        value: T, in [0.05, 20].
        rows: How many rows it was fitted on.
        ece_before: Their expected calibration error at T = 1, in [0, 1].
        ece_after: The same at T.
    """

    value: float
    rows: int
    ece_before: float
    ece_after: float


def fit_temperature(logits: Tensor, labels: Tensor) -> Temperature | None:
    """Fit a task's temperature by the likelihood of its labels.

    Minimises Σ −log softmax(z/T)[y] + ½ log² T over the rows. The last term, a normal prior on
    log T, is worth about one row: without it, rows that are all answered rightly would have T → 0,
    and full confidence in every answer.

    Args:
        logits: Floating, shape (n, K).
        labels: Right classes in [0, K), shape (n,).

    Returns:
        None where nothing can be fitted: no rows, a regression, a single class, or logits that are
        not finite.
    """
    if not len(labels) or logits.shape[1] < 2 or labels.is_floating_point():
        return None
    scaled = logits.detach().double().cpu()
    right = labels.detach().cpu()
    if not bool(scaled.isfinite().all()):
        return None
    low, high = math.log(_LOWEST), math.log(_HIGHEST)
    best = 0.0
    for _ in range(2):  # a coarse grid, then a fine one around its best point
        step = (high - low) / _POINTS
        points = [low + step * place for place in range(_POINTS + 1)]
        best = min(points, key=lambda point: _loss(scaled, right, point))
        low, high = max(low, best - step), min(high, best + step)
    value = math.exp(best)
    before, after = (ece((scaled / t).softmax(1), right) for t in (1.0, value))
    return Temperature(value, len(right), before, after)


def _loss(logits: Tensor, labels: Tensor, log_temperature: float) -> float:
    chances = (logits * math.exp(-log_temperature)).log_softmax(1)
    return 0.5 * log_temperature**2 - float(chances.gather(1, labels[:, None]).sum())
