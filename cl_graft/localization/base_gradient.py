"""The gradient at the base: |Σ g| over a few batches, before any fine-tuning of the weights.

This is the score of SAM (Fu et al., 2023, "On the Effectiveness of Parameter-Efficient
Fine-Tuning", https://arxiv.org/abs/2211.15583, Sec. 4), taken over the whole model instead of
tensor by tensor and without dropout.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cl_graft.localization.problem import Problem, add_gradient_

__all__ = ["base_gradient"]


def base_gradient(problem: Problem, *, k: int, steps: int) -> dict[str, Tensor]:
    """Score coordinates by the size of their summed gradient at the base over `steps` batches."""
    del k
    total = {
        name: torch.zeros_like(base, dtype=torch.float32) for name, base in problem.base.items()
    }

    def add(name: str, gradient: Tensor) -> None:
        total[name] += gradient.float()

    for step in range(steps):
        add_gradient_(problem, step, into=add)
    return {name: tensor.abs_() for name, tensor in total.items()}
