"""Relative gain: how much of what fine-tuning gains a graft gains."""

from __future__ import annotations

__all__ = ["relative_gain"]


def relative_gain(score: float, *, base: float, full: float) -> float | None:
    """Return (P_γ − P_0) / (P_1 − P_0) (Panigrahi et al., 2023, Eq. 5).

    https://arxiv.org/abs/2302.06600. 0 is the base, 1 the fully fine-tuned model; outside of
    [0, 1] a graft is worse than the base, or better than the full model.

    Args:
        score: The grafted model's, P_γ.
        base: The pre-trained model's, P_0, or that of answering with the largest class.
        full: The fine-tuned or multi-task model's, P_1.

    Returns:
        The gain; None if fine-tuning gained nothing, `full` ≤ `base`.
    """
    return (score - base) / (full - base) if full > base else None
