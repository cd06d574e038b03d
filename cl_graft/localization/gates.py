"""Gates between base and tuned weights: their gradient, their learning, and which of them open.

With θ = base + m ⊙ δ and δ = tuned − base, the loss has the gradient g ⊙ δ in the gates m.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from cl_graft.grafts.graft import copy_
from cl_graft.grafts.region import Layout, Parameters, Region
from cl_graft.grafts.selection import top_k
from cl_graft.localization.localizer_inputs import LocalizerInputs, mean_gradient
from cl_graft.runtime.checkpoints import (
    join_tensors,
    load_optimizer_,
    optimizer_state,
    select_tensors,
)

__all__ = ["gate_gradient", "learn_gates_", "open_gates"]


def open_gates(gains: Parameters, started: Region, *, k: int) -> Region:
    """Open the gates of highest gain, and close those of lowest: at most `k` are open then.

    By Eq. 4 of the grafting paper a gate that starts closed opens once its accumulated gain
    reaches a threshold, and one that starts open closes once its loss does (decision 1). The
    threshold is the lowest one that leaves at most `k` open.

    Args:
        gains: Accumulated gain of every coordinate, one tensor a parameter.
        started: Gates that were open, at most `k` (γ_base).
        k: The budget.

    Returns:
        The open gates.
    """
    layout = Layout.of(gains)
    flat = torch.cat([gains[name].reshape(-1).cpu() for name in layout.names])
    opened = torch.zeros(layout.total, dtype=torch.bool)
    opened[started.index] = True
    steps = torch.where(opened, -flat, flat)
    # After n moves at least n - len(started) gates are open, so more moves leave too many open.
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
    # As in `add_gradient_`, one parameter's difference lives at a time.
    moved = {
        name: value + (gates[name] * _difference(inputs, base, name)).to(value.dtype)
        for name, value in base.items()
    }
    copy_(inputs.parameters, moved)
    del moved
    try:
        gradient = mean_gradient(inputs, step)
    finally:
        copy_(inputs.parameters, base)
    for name, tensor in gradient.items():
        tensor.mul_(_difference(inputs, base, name))
    return gradient


def learn_gates_(
    inputs: LocalizerInputs,
    learned: dict[str, Tensor],
    gradient: Callable[[int], Mapping[str, Tensor]],
    *,
    name: str,
    lr: float,
    steps: int,
) -> None:
    """Take steps of Adam on the parameters of gates, in place, and save them after each.

    Args:
        inputs: The localizer's inputs, with the checkpoint.
        learned: Parameters of the gates by name, one a coordinate.
        gradient: Function of a step, from 0, that returns the gradient of `learned`, by name.
        name: Name of the parameters in the checkpoint.
        lr: Learning rate, > 0.
        steps: Number of steps.
    """
    optimizer = torch.optim.Adam(list(learned.values()), lr=lr)
    first, saved = 0, inputs.checkpoint.load()
    if saved is not None:
        copy_(learned, select_tensors(saved[0], name))
        load_optimizer_(optimizer, select_tensors(saved[0], "adam"), saved[1]["adam"])
        first = saved[1]["step"]
    for step in range(first, steps):
        found = gradient(step)
        for key, tensor in learned.items():
            tensor.grad = found[key]
        optimizer.step()
        moments, numbers = optimizer_state(optimizer)
        groups: dict[str, Mapping[str, Tensor]] = {name: learned, "adam": moments}
        state = join_tensors(**groups), {"adam": numbers, "step": step + 1}
        inputs.checkpoint.offer(lambda state=state: state)


def _difference(inputs: LocalizerInputs, base: Parameters, name: str) -> Tensor:
    return inputs.tuned[name].float() - base[name].float()
