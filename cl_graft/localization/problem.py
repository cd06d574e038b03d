"""What a localizer is given: a base, its tuned twin, and gradients of the task's loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from cl_graft.region import Layout, Parameters

__all__ = ["Problem", "add_gradient_"]


@dataclass(frozen=True, eq=False)
class Problem:
    """One task's localization problem.

    Attributes:
        model: The model, at its base and in eval mode (no dropout, as in the published code). A
            localizer may move it but puts it back.
        parameters: Its graftable parameters.
        base: Their values before fine-tuning.
        tuned: Their values after it.
        losses: The mean losses of the micro-batches of a step, computed one by one as the
            localizer walks through them.
        dev_score: Score of the model as it is now on dev, higher is better.
        train_score: The same on a part of train; only the paper mode looks at it.
        seed: Random choices of the localizer are a function of it.
    """

    model: nn.Module
    parameters: Mapping[str, nn.Parameter]
    base: Parameters
    tuned: Parameters
    losses: Callable[[int], Sequence[Callable[[], Tensor]]]
    dev_score: Callable[[], float]
    train_score: Callable[[], float]
    seed: int

    @property
    def layout(self) -> Layout:
        """The graftable parameters' layout."""
        return Layout.of(self.base)


def add_gradient_(problem: Problem, step: int, *, into: Callable[[str, Tensor], None]) -> None:
    """Hand the gradient of a step's loss to `into`, one parameter at a time, and free it.

    The gradient is the mean over the step's micro-batches of their mean losses' gradients.
    """
    micro = problem.losses(step)
    for parameter in problem.parameters.values():
        parameter.grad = None
    with torch.enable_grad():
        for loss in micro:
            (loss() / len(micro)).backward()
    for name, parameter in problem.parameters.items():
        if parameter.grad is not None:
            into(name, parameter.grad)
            parameter.grad = None
