"""ChildPruning: train from the base, and after every step keep only the largest movements.

After each step the weights that moved least in their tensor are put back to the base (Mallya et
al., 2018 and Xu et al., 2021, as in Fu et al., 2023, Sec. 2.2,
https://arxiv.org/abs/2211.15583). Which weights are put back changes from step to step, which
Fu et al. call projection discontinuity; what remains after the last step is the region.
"""

from __future__ import annotations

from torch import Tensor

from cl_graft.grafts.graft import copy_
from cl_graft.grafts.model_state import preserve_parameters
from cl_graft.grafts.region import Parameters
from cl_graft.localization.localizer_inputs import LocalizerInputs, add_gradient_, remaining_steps
from cl_graft.localization.ranking import rank_by_tensor
from cl_graft.localization.registry import register_localizer


@register_localizer(
    name="child_pruning",
    source="Fu et al., 2023, https://arxiv.org/abs/2211.15583, published code (ChildPruning)",
    needs_dense_run=False,
    per_tensor=True,
)
def child_pruning(
    inputs: LocalizerInputs, *, k: int, steps: int, lr: float = 0.05
) -> dict[str, Tensor]:
    """Score coordinates by |θ − base| after SGD that keeps only the k largest movements a step."""
    moved = inputs.zeros()

    def descend(name: str, gradient: Tensor) -> None:
        moved[name].sub_(gradient.float(), alpha=lr)

    with preserve_parameters(inputs.parameters) as base:
        for step in remaining_steps(inputs, moved, steps=steps):
            if step:
                _project_(moved, k)
                copy_(
                    inputs.parameters,
                    {name: (base[name].float() + delta) for name, delta in moved.items()},
                )
            add_gradient_(inputs, step, into=descend)
    return {name: delta.abs_() for name, delta in moved.items()}


def _project_(moved: Parameters, k: int) -> None:
    """Put all but the k largest movements, by tensor, to 0."""
    sizes = {name: delta.abs() for name, delta in moved.items()}
    masks = rank_by_tensor(sizes, depth=k).top(k).masks()
    for name, delta in moved.items():
        delta.mul_(masks[name].to(delta.device))
