"""Magnitude: the largest weights of every tensor, as in pruning.

Magnitude pruning keeps large weights (Han et al., 2015, https://arxiv.org/abs/1506.02626);
MagPruning of Fu et al., 2023 (Sec. 2.2, https://arxiv.org/abs/2211.15583) lets them be tuned. In
the paper they are the base's largest, in its code the largest after 500 steps of dense training.
"""

from __future__ import annotations

from torch import Tensor

from cl_graft.localization.localizer_inputs import LocalizerInputs
from cl_graft.localization.registry import register_localizer

__all__ = ["magnitude", "tuned_magnitude"]


@register_localizer(
    name="magnitude",
    source="Fu et al., 2023, https://arxiv.org/abs/2211.15583, Sec. 2.2 (MagPruning)",
    needs_gradients=False,
    needs_dense_run=False,
    per_tensor=True,
)
def magnitude(inputs: LocalizerInputs, *, k: int, steps: int) -> dict[str, Tensor]:
    """Score coordinates by the size of their weight at the base, |base|."""
    del k, steps
    return {name: value.float().abs() for name, value in inputs.base.items()}


@register_localizer(
    name="tuned_magnitude",
    source="Fu et al., 2023, https://arxiv.org/abs/2211.15583, published code (MagPruning)",
    needs_gradients=False,
    per_tensor=True,
)
def tuned_magnitude(inputs: LocalizerInputs, *, k: int, steps: int) -> dict[str, Tensor]:
    """Score coordinates by the size of their weight after fine-tuning, |tuned|."""
    del k, steps
    return {name: value.float().abs() for name, value in inputs.tuned.items()}
