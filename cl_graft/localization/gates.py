"""Gates on the way from base to tuned weights, and the gradient of the loss in them.

With θ = base + m ⊙ δ and δ = tuned − base, the loss has the gradient g ⊙ δ in the gates m.
"""

from __future__ import annotations

from torch import Tensor

from cl_graft.graft import copy_
from cl_graft.localization.problem import Problem, add_gradient_
from cl_graft.region import Parameters

__all__ = ["gate_gradient"]


def gate_gradient(
    problem: Problem, base: Parameters, gates: Parameters, step: int
) -> dict[str, Tensor]:
    """Return g ⊙ δ of a step's batch on the model at base + gates ⊙ δ, which is put back to base.

    Args:
        problem: The task's problem, with tuned weights.
        base: A copy of the base's values.
        gates: One float a coordinate.
        step: Which batch.
    """
    gradient = problem.zeros()

    def add(name: str, part: Tensor) -> None:
        gradient[name] += part

    # As in `add_gradient_`, one parameter's difference lives at a time.
    moved = {
        name: value + (gates[name] * _difference(problem, base, name)).to(value.dtype)
        for name, value in base.items()
    }
    copy_(problem.parameters, moved)
    del moved
    try:
        add_gradient_(problem, step, into=add)
    finally:
        copy_(problem.parameters, base)
    for name, tensor in gradient.items():
        tensor.mul_(_difference(problem, base, name))
    return gradient


def _difference(problem: Problem, base: Parameters, name: str) -> Tensor:
    return problem.tuned[name].float() - base[name].float()
