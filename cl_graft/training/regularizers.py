"""Regularizers that pull weights towards the base: an L1 penalty on the movement, and Mixout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from cl_graft.grafts.graft import copy_
from cl_graft.grafts.model_state import preserve_parameters
from cl_graft.grafts.region import Parameters
from cl_graft.runtime.seeding import generator


def shrink_movement_(
    parameters: Mapping[str, nn.Parameter],
    base: Parameters,
    optimizer: torch.optim.Optimizer,
    *,
    strength: float,
) -> None:
    """Take the proximal step of `strength`·‖θ − base‖₁ after an optimiser's step, in place.

    The L1 penalty on the movement (Panigrahi et al., 2023, Sec. 3.3 and Fig. 5,
    https://arxiv.org/abs/2302.06600; λ = 0.001) keeps weights at the base bit for bit by this step:
    θ ← base + sign(d)·max(|d| − rate·λ, 0) with d = θ − base. The rate is that of the step before,
    coordinate by coordinate: lr with SGD, lr/(√v̂ + ε) with AdamW.

    Examples:
        >>> weight = nn.Parameter(torch.tensor([1.0, 0.2]))
        >>> optimizer = torch.optim.SGD([weight], lr=1.0)
        >>> shrink_movement_({"w": weight}, {"w": torch.zeros(2)}, optimizer, strength=0.5)
        >>> weight.detach()
        tensor([0.5000, 0.0000])
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


@contextmanager
def mix_weights(
    parameters: Mapping[str, nn.Parameter], base: Parameters, *, p: float, seed: int, step: int
) -> Iterator[None]:
    """Let a model compute with Mixout's weights for a `with` block, then put its own back.

    Every weight is replaced by its base value with probability p, and the others are moved away
    from it so that the expectation stays (Lee et al., 2020, Sec. 3.2,
    https://arxiv.org/abs/1909.11299): θ̃ = base + (1 − M) ⊙ (θ − base) / (1 − p) with M ~
    Bernoulli(p). Gradients that were gathered inside become those of the weights themselves. M
    depends on `seed`, `step` and the parameter's name.
    """
    own = {name: parameters[name] for name in base}
    kept = {name: draw_mask(value, 1 - p, seed, step, name) for name, value in base.items()}
    with preserve_parameters(own) as before:
        for name, value in base.items():
            moved = (before[name] - value) * kept[name] / (1 - p)
            copy_(own, {name: value + moved})
        yield
    for name, parameter in own.items():
        if parameter.grad is not None:
            parameter.grad.mul_(kept[name]).div_(1 - p)


def draw_mask(like: Tensor, chance: float, seed: int, step: int, name: str) -> Tensor:
    """Draw the mask M of a tensor and a step, whose entries are True with a chance."""
    draws = torch.rand(like.shape, generator=generator(seed, "mixout", step, name))
    return (draws < chance).to(like.device)
