"""Scores by gradients from the base: sums (SAM), squares (FISH), descent (ChildPruning).

FISH's repository counts the task head within its budget; here the budget is the graftable
coordinates' alone.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from cl_graft.grafts.graft import copy_
from cl_graft.grafts.model_state import preserve_modes, preserve_parameters
from cl_graft.grafts.region import Parameters
from cl_graft.localization.localizer_inputs import (
    LocalizerInputs,
    add_gradient_,
    gradient_hooks,
    mean_gradient,
    remaining_steps,
)
from cl_graft.localization.ranking import rank_by_tensor
from cl_graft.localization.registry import register_localizer
from cl_graft.runtime.seeding import seeded
from cl_graft.training.train_mode import freeze_statistics


@register_localizer(
    name="base_gradient",
    source="Fu et al., 2023, https://arxiv.org/abs/2211.15583, Theorem 3 (SAM), its paper",
    needs_dense_run=False,
)
def base_gradient(inputs: LocalizerInputs, *, k: int, steps: int) -> dict[str, Tensor]:
    """Score coordinates by the size of their summed gradient at the base, |Σ g|."""
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
    total = inputs.zeros()
    for step in remaining_steps(inputs, total, steps=steps):
        with seeded(inputs.seed, "dropout", step), preserve_modes(inputs.model):
            inputs.model.train()
            freeze_statistics(inputs.model)
            gradient = mean_gradient(inputs, step)
        norm = torch.stack([tensor.norm() for tensor in gradient.values()]).norm()
        shrunk = (_CLIP / (norm + 1e-6)).clamp(max=1.0)  # as torch clips
        for name, tensor in gradient.items():
            total[name].add_(tensor * shrunk)
    return {name: tensor.abs_() for name, tensor in total.items()}


def _add_squared(total: Parameters) -> Callable[[str, Tensor], object]:
    def add(name: str, gradient: Tensor) -> None:
        wide = gradient.float()
        total[name].addcmul_(wide, wide)

    return add


@register_localizer(
    name="fisher",
    source=(
        "Sung et al., 2021, https://arxiv.org/abs/2111.09839, Sec. 3, with micro-batches for rows"
    ),
    needs_dense_run=False,
)
def fisher(inputs: LocalizerInputs, *, k: int, steps: int) -> dict[str, Tensor]:
    """Score coordinates by the empirical Fisher information at the base, Σ g² of micro-batches."""
    total = inputs.zeros()
    for step in remaining_steps(inputs, total, steps=steps):
        add_gradient_(inputs, step, into=_add_squared(total))
    return total


@register_localizer(
    name="fish",
    source="Sung et al., 2021, https://arxiv.org/abs/2111.09839, Eq. 7",
    needs_dense_run=False,
)
def fish(inputs: LocalizerInputs, *, k: int, steps: int) -> dict[str, Tensor]:
    """Score coordinates by the empirical Fisher information at the base, Σ g² of single rows."""
    total = inputs.zeros()
    for step in remaining_steps(inputs, total, steps=steps):
        with gradient_hooks(inputs, into=_add_squared(total)):
            for loss in inputs.row_losses(step):
                (loss() * inputs.loss_scale).backward()
    return total


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
                sizes = {name: delta.abs() for name, delta in moved.items()}
                for name, mask in rank_by_tensor(sizes, depth=k).top(k).masks().items():
                    moved[name].mul_(mask.to(moved[name].device))
                values = {name: base[name].float() + delta for name, delta in moved.items()}
                copy_(inputs.parameters, values)
            add_gradient_(inputs, step, into=descend)
    return {name: delta.abs_() for name, delta in moved.items()}
