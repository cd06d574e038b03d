"""Random regions: the control that every localizer has to beat."""

from __future__ import annotations

import torch
from torch import Tensor

from cl_graft.localization.localizer_inputs import LocalizerInputs
from cl_graft.runtime.seeding import generator

__all__ = ["uniform"]


def uniform(inputs: LocalizerInputs, *, k: int, steps: int, depth: int) -> dict[str, Tensor]:
    """Score coordinates by uniform draws, a function of the seed and the names."""
    del k, steps, depth
    return {
        name: torch.rand(base.shape, generator=generator(inputs.seed, "uniform", name))
        for name, base in inputs.base.items()
    }
