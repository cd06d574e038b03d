"""The summed gradient at the base, before any fine-tuning of the weights.

The score needs no dense run, so a task costs a few gradient batches and the training of its
region. It is taken over the whole model, not tensor by tensor, and without dropout.
"""

from __future__ import annotations

from torch import Tensor

from cl_graft.localization.localizer_inputs import LocalizerInputs, add_gradient_, remaining_steps
from cl_graft.localization.registry import register_localizer

__all__ = ["base_gradient"]


@register_localizer(
    name="base_gradient",
    source="Fu et al., 2023, https://arxiv.org/abs/2211.15583, Theorem 3 (SAM), its paper",
    needs_dense_run=False,
)
def base_gradient(inputs: LocalizerInputs, *, k: int, steps: int) -> dict[str, Tensor]:
    """Score coordinates by the size of their summed gradient at the base, |Σ g|.

    The score of SAM (Fu et al., 2023, "On the Effectiveness of Parameter-Efficient Fine-Tuning",
    https://arxiv.org/abs/2211.15583, Sec. 4).
    """
    del k
    total = inputs.zeros()
    for step in remaining_steps(inputs, total, steps=steps):
        add_gradient_(inputs, step, into=lambda name, gradient: total[name].add_(gradient))
    return {name: tensor.abs_() for name, tensor in total.items()}
