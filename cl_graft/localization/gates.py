"""Gates on the way from base to tuned weights, and the gradient of the loss in them.

With θ = base + m ⊙ δ and δ = tuned − base, the loss has the gradient g ⊙ δ in the gates m.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cl_graft.grafts.graft import copy_
from cl_graft.grafts.region import Layout, Parameters, Region
from cl_graft.grafts.selection import top_k
from cl_graft.localization.localizer_inputs import LocalizerInputs, add_gradient_

__all__ = ["gate_gradient", "gated"]


def gated(gains: Parameters, started: Region, *, k: int) -> Region:
    """Return which gates are open where some were at the start, at most `k`.

    By Eq. 4 of the grafting paper a gate that starts closed opens once its accumulated gain
    reaches a threshold, and one that starts open closes once its loss does (decision 1). The
    threshold is the lowest one that leaves at most `k` open.

    Args:
        gains: Accumulated gain of every coordinate, one tensor a parameter.
        started: Gates that were open, at most `k` (γ_base).
        k: The budget.
    """
    layout = Layout.of(gains)
    flat = torch.cat([gains[name].reshape(-1).cpu() for name in layout.names])
    opened = torch.zeros(layout.total, dtype=torch.bool)
    opened[started.index] = True
    steps = torch.where(opened, -flat, flat)
    # A prefix leaves at least its length less what was open, so longer ones leave too many.
    most = min(layout.total, k + len(started))
    order = top_k({"": steps}, most).index
    order = order[steps[order].sort(descending=True, stable=True).indices]
    order = order[steps[order] > 0]
    sizes = len(started) + torch.where(opened[order], -1, 1).cumsum(0)
    within = (sizes <= k).nonzero()
    moved = order[: int(within[-1]) + 1] if len(within) else order[:0]
    opened[moved] = ~opened[moved]
    return Region.of(layout, opened.nonzero().view(-1))


def gate_gradient(
    inputs: LocalizerInputs, base: Parameters, gates: Parameters, step: int
) -> dict[str, Tensor]:
    """Return g ⊙ δ of a step's batch on the model at base + gates ⊙ δ, which is put back to base.

    Args:
        inputs: The base, tuned weights and gradients.
        base: A copy of the base's values.
        gates: One float a coordinate.
        step: Number of the batch.
    """
    gradient = inputs.zeros()

    def add(name: str, part: Tensor) -> None:
        gradient[name] += part

    # As in `add_gradient_`, one parameter's difference lives at a time.
    moved = {
        name: value + (gates[name] * _difference(inputs, base, name)).to(value.dtype)
        for name, value in base.items()
    }
    copy_(inputs.parameters, moved)
    del moved
    try:
        add_gradient_(inputs, step, into=add)
    finally:
        copy_(inputs.parameters, base)
    for name, tensor in gradient.items():
        tensor.mul_(_difference(inputs, base, name))
    return gradient


def _difference(inputs: LocalizerInputs, base: Parameters, name: str) -> Tensor:
    return inputs.tuned[name].float() - base[name].float()
