r"""Bound on a sparse model's loss on new data against the best: Theorems D.2 and D.4.

With losses in [0, 1], s coordinates that take one of q values each, Θ_n regions that training sets
of size n may lead to, and probability 1 − δ (Panigrahi et al., 2023, App. D,
https://arxiv.org/abs/2302.06600),

    L_test(θ(γ)) − L_test(θ*) ≤ 2 √((s log q + log Θ_n + log(1/δ)) / n) + bias + 4 ε₁

for a region that is re-trained (D.2); for a graft that is not, log(2/δ) stands in place of log(1/δ)
and ε₂ is added (D.4). bias = L_test(θ*(γ)) − L_test(θ*), ε₁ is what quantization changes a loss by,
and ε₂ how much worse than re-training the graft fits its training set.
"""

from __future__ import annotations

import math


def variance_bound(
    *,
    size: int,
    values: int,
    rows: int,
    delta: float,
    log_regions: float = 0.0,
    retrained: bool = True,
) -> float:
    """Return the variance term, a bound of 2·sup |L_test − L_train| over all such models.

    Args:
        size: Coordinates in a region, s.
        values: Values that a coordinate can take, q; 2¹⁶ for bf16.
        rows: Training rows, n.
        delta: Chance that the bound fails, in (0, 1).
        log_regions: log Θ_n; 0 for a region fixed beforehand (as with BitFit), at most
            s·log(coordinates of the model).
        retrained: Whether Theorem D.2 holds, else D.4.

    Raises:
        ValueError: If a number is out of its range.
    """
    if size < 0 or values < 1 or rows < 1 or not 0 < delta < 1 or log_regions < 0:
        raise ValueError(
            "expected size and log_regions of at least 0, values and rows of at least 1 and delta "
            f"in (0, 1), got {size}, {log_regions}, {values}, {rows} and {delta}"
        )
    doubt = math.log((1 if retrained else 2) / delta)
    return 2 * math.sqrt((size * math.log(values) + log_regions + doubt) / rows)


def generalization_bound(
    variance: float, *, bias: float = 0.0, quantization: float = 0.0, fit: float = 0.0
) -> float:
    """Return the whole bound of L_test(θ(γ)) − L_test(θ*): variance + bias + 4 ε₁ + ε₂.

    Args:
        variance: From `variance_bound`.
        bias: L_test of the best model inside the region less that of the best model.
        quantization: ε₁.
        fit: ε₂, of Theorem D.4; 0 in Theorem D.2.
    """
    return variance + bias + 4 * quantization + fit
