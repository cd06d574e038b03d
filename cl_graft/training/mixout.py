"""Mixout: weights that fall back to the base at random, in training or in evaluation.

In training every weight is replaced by its base value with probability p, and the others are
moved away from it so that the expectation stays (Lee et al., 2020, Sec. 3.2,
https://arxiv.org/abs/1909.11299):

    θ̃ = (M ⊙ base + (1 − M) ⊙ θ − p · base) / (1 − p) = base + (1 − M) ⊙ (θ − base) / (1 − p),

with M ~ Bernoulli(p): dropout on the movement. The repository of Fu et al., 2023
(https://arxiv.org/abs/2211.15583) trains without it and replaces weights when it evaluates,
without the correction; both are here, drawn from a seed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from cl_graft.grafts.graft import copy_
from cl_graft.grafts.model_state import preserve_parameters
from cl_graft.grafts.region import Parameters
from cl_graft.runtime.seeding import generator

__all__ = ["mixed_evaluation", "mixed_training"]


@contextmanager
def mixed_training(
    parameters: Mapping[str, nn.Parameter], base: Parameters, *, p: float, seed: int, step: int
) -> Iterator[None]:
    """Let the model compute with mixed weights for a `with` block.

    Afterwards the weights are put back bit for bit, and gradients that were gathered inside are
    those of the weights themselves: (1 − M) / (1 − p) times the mixed weights' own.

    Args:
        parameters: The model's, by name; those in `base` are mixed.
        base: Base values by name.
        p: Chance of a weight to fall back, in [0, 1).
        seed: Draws M, together with `step` and a parameter's name.
        step: Number of the training step.

    Raises:
        ValueError: If `p` is not in [0, 1).
    """
    if not 0 <= p < 1:
        raise ValueError(f"p must be in [0, 1), got {p}")
    own = {name: parameters[name] for name in base}
    kept = {name: _drawn(value, 1 - p, seed, step, name) for name, value in base.items()}
    with preserve_parameters(own) as before:
        for name, value in base.items():
            moved = (before[name] - value) * kept[name] / (1 - p)
            copy_(own, {name: value + moved})
        yield
    for name, parameter in own.items():
        if parameter.grad is not None:
            parameter.grad.mul_(kept[name]).div_(1 - p)


@contextmanager
def mixed_evaluation(
    parameters: Mapping[str, nn.Parameter], base: Parameters, *, p: float, seed: int
) -> Iterator[None]:
    """Put each weight back to its base value with probability `p` for a `with` block.

    Afterwards the weights have their values again, bit for bit.

    Raises:
        ValueError: If `p` is not in [0, 1].
    """
    if not 0 <= p <= 1:
        raise ValueError(f"p must be in [0, 1], got {p}")
    own = {name: parameters[name] for name in base}
    with preserve_parameters(own) as before:
        for name, value in base.items():
            fallen = _drawn(value, p, seed, 0, name)
            copy_(own, {name: torch.where(fallen, value, before[name])})
        yield


def _drawn(like: Tensor, chance: float, seed: int, step: int, name: str) -> Tensor:
    """Draw a mask whose entries are True with a chance."""
    draws = torch.rand(like.shape, generator=generator(seed, "mixout", step, name))
    return (draws < chance).to(like.device)
