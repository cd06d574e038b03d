"""Movement: how far fine-tuning moved a coordinate, |θ_ft − θ_pre|.

The paper's γ_base is the top of this score (Panigrahi et al., 2023, Sec. 2.3,
https://arxiv.org/abs/2302.06600).
"""

from __future__ import annotations

from torch import Tensor

from cl_graft.localization.problem import Problem

__all__ = ["movement"]


def movement(problem: Problem, *, k: int, steps: int) -> dict[str, Tensor]:
    """Score coordinates by |tuned − base|; needs no gradients, `k` and `steps` play no part."""
    del k, steps
    return {
        name: (problem.tuned[name].float() - base.float()).abs()
        for name, base in problem.base.items()
    }
