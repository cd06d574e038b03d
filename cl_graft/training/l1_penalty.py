"""An L1 penalty on the movement from the base, as a proximal step after the optimiser's.

Dense runs with AdamW leave no sparse graft unless λ·‖θ − base‖₁ is added to the loss (Panigrahi et
al., 2023, Sec. 3.3 and Fig. 5, https://arxiv.org/abs/2302.06600; λ = 0.001). In the loss the
penalty keeps no weight exactly at the base, and costs a copy of the model in every forward pass.
Its proximal step shrinks every movement by its rate, and what is smaller stays at the base bit for
bit: θ ← base + sign(d)·max(|d| − rate·λ, 0) with d = θ − base.

The rate is that of the step before, coordinate by coordinate: lr with SGD, lr/(√v̂ + ε) with
AdamW, so that in either case a weight leaves the base only where its gradient exceeds λ.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from cl_graft.grafts.region import Parameters

__all__ = ["shrink_movement_"]


def shrink_movement_(
    parameters: Mapping[str, nn.Parameter],
    base: Parameters,
    optimizer: torch.optim.Optimizer,
    *,
    strength: float,
) -> None:
    """Take the proximal step of `strength`·‖θ − base‖₁, in place.

    Args:
        parameters: Trained parameters by name; the movement of those in `base` is shrunk.
        base: Base values by name.
        optimizer: The optimiser, after its step.
        strength: λ.
    """
    groups = {id(p): group for group in optimizer.param_groups for p in group["params"]}
    with torch.no_grad():
        for name, value in base.items():
            parameter = parameters[name]
            rate = _rate(optimizer, parameter, groups[id(parameter)])
            moved = parameter.detach() - value
            left = moved.abs() - rate * strength
            shrunk = value + moved.sign() * left
            parameter.copy_(torch.where(left > 0, shrunk, value))


def _rate(
    optimizer: torch.optim.Optimizer, parameter: nn.Parameter, group: Mapping[str, object]
) -> float | Tensor:
    """Return the length of the last step per unit of gradient."""
    lr, state = float(group["lr"]), optimizer.state.get(parameter, {})  # type: ignore[arg-type]
    if "exp_avg_sq" not in state:
        return lr
    beta = group["betas"][1]  # type: ignore[index]
    correction = 1 - beta ** float(state["step"])
    return lr / ((state["exp_avg_sq"] / correction).sqrt() + group["eps"])
