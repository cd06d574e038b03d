"""Random regions: the control that every localizer has to beat."""

from __future__ import annotations

import torch
from torch import Tensor

from cl_graft.localization.localizer_inputs import LocalizerInputs
from cl_graft.localization.registry import register_localizer
from cl_graft.runtime.seeding import generator


@register_localizer(
    name="random",
    source="Panigrahi et al., 2023, https://arxiv.org/abs/2302.06600, Fig. 2 (control)",
    needs_gradients=False,
    needs_dense_run=False,
)
def uniform(inputs: LocalizerInputs, *, k: int, steps: int) -> dict[str, Tensor]:
    """Score coordinates by uniform draws, a function of the seed and the names."""
    del k, steps
    return {
        name: torch.rand(base.shape, generator=generator(inputs.seed, "uniform", name))
        for name, base in inputs.base.items()
    }
