"""SAM: gradients at the base, as its paper and as its repository compute them.

The paper takes the coordinates with the largest squared gradient of the whole model (Fu et al.,
2023, Theorem 3, https://arxiv.org/abs/2211.15583); `base_gradient` does so. Its code runs some
hundred backward passes with dropout on and without an update, clips each gradient's norm to 1,
adds the gradients up with their signs, and takes the top of every tensor; its flags put absolute
or squared gradients in their place. Here the norm is that of the graftable parameters, and the
dropout of a step is a function of the seed.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from cl_graft.grafts.model_state import preserve_modes
from cl_graft.localization.localizer_inputs import (
    LocalizerInputs,
    add_gradient_,
    mean_gradient,
    remaining_steps,
)
from cl_graft.localization.registry import register_localizer
from cl_graft.runtime.seeding import seeded
from cl_graft.training.train_mode import freeze_statistics


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


_CLIP = 1.0


@register_localizer(
    name="sam",
    source="Fu et al., 2023, https://arxiv.org/abs/2211.15583, Sec. 4, published code",
    needs_dense_run=False,
    per_tensor=True,
)
def sam(inputs: LocalizerInputs, *, k: int, steps: int) -> dict[str, Tensor]:
    """Score coordinates by |Σ g| over clipped gradients in train mode."""
    del k
    total = _sum_gradients(inputs, steps, lambda into, g: into.add_(g))
    return {name: tensor.abs_() for name, tensor in total.items()}


@register_localizer(
    name="sam_absolute",
    source="Fu et al., 2023, https://arxiv.org/abs/2211.15583, published code (abs)",
    needs_dense_run=False,
    per_tensor=True,
)
def sam_absolute(inputs: LocalizerInputs, *, k: int, steps: int) -> dict[str, Tensor]:
    """Score coordinates by Σ |g| over clipped gradients in train mode."""
    del k
    return _sum_gradients(inputs, steps, lambda into, g: into.add_(g.abs()))


@register_localizer(
    name="sam_squared",
    source="Fu et al., 2023, https://arxiv.org/abs/2211.15583, published code (fisher)",
    needs_dense_run=False,
    per_tensor=True,
)
def sam_squared(inputs: LocalizerInputs, *, k: int, steps: int) -> dict[str, Tensor]:
    """Score coordinates by Σ g² over clipped gradients in train mode."""
    del k
    return _sum_gradients(inputs, steps, lambda into, g: into.addcmul_(g, g))


def _sum_gradients(
    inputs: LocalizerInputs, steps: int, fold: Callable[[Tensor, Tensor], Tensor]
) -> dict[str, Tensor]:
    """Fold the clipped gradient of every step into a sum."""
    total = inputs.zeros()
    for step in remaining_steps(inputs, total, steps=steps):
        with seeded(inputs.seed, "dropout", step), preserve_modes(inputs.model):
            inputs.model.train()
            freeze_statistics(inputs.model)
            gradient = mean_gradient(inputs, step)
        norm = torch.stack([tensor.norm() for tensor in gradient.values()]).norm()
        shrunk = (_CLIP / (norm + 1e-6)).clamp(max=1.0)  # as torch clips
        for name, tensor in gradient.items():
            fold(total[name], tensor * shrunk)
    return total
