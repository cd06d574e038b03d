"""ChildPruning: train from the base, and after every step keep only the largest movements.

After each step the weights that moved least in their tensor are put back to the base (Mallya et
al., 2018 and Xu et al., 2021, as in Fu et al., 2023, Sec. 2.2,
https://arxiv.org/abs/2211.15583). Which weights are put back changes from step to step, which
Fu et al. call projection discontinuity; what remains after the last step is the region.
"""

from __future__ import annotations

from torch import Tensor

from cl_graft.grafts.graft import copy_
from cl_graft.grafts.model_state import keeping
from cl_graft.grafts.region import Parameters
from cl_graft.localization.problem import Problem, add_gradient_, steps_left
from cl_graft.localization.ranking import rank_by_tensor

__all__ = ["child_pruning"]


def child_pruning(
    problem: Problem, *, k: int, steps: int, depth: int, lr: float = 0.05
) -> dict[str, Tensor]:
    """Score coordinates by |θ − base| after SGD that keeps only the k largest movements a step.

    Args:
        problem: The task's problem.
        k: How many coordinates keep their movement after a step, by tensor.
        steps: Steps of SGD, the last of which is not followed by a projection.
        depth: Plays no part here.
        lr: Of SGD.
    """
    del depth
    moved = problem.zeros()

    def descend(name: str, gradient: Tensor) -> None:
        moved[name].sub_(gradient.float(), alpha=lr)

    with keeping(problem.parameters) as base:
        for step in steps_left(problem, moved, steps=steps):
            if step:
                _project_(moved, k)
                copy_(
                    problem.parameters,
                    {name: (base[name].float() + delta) for name, delta in moved.items()},
                )
            add_gradient_(problem, step, into=descend)
    return {name: delta.abs_() for name, delta in moved.items()}


def _project_(moved: Parameters, k: int) -> None:
    """Put all but the k largest movements, by tensor, to 0."""
    sizes = {name: delta.abs() for name, delta in moved.items()}
    masks = rank_by_tensor(sizes, depth=k).top(k).masks()
    for name, delta in moved.items():
        delta.mul_(masks[name].to(delta.device))
