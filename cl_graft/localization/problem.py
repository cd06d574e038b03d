"""What a localizer is given: a base, its tuned twin, and gradients of the task's loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from cl_graft.errors import DivergedError
from cl_graft.grafts.graft import copy_
from cl_graft.grafts.region import Layout, Parameters
from cl_graft.runtime.checkpoints import NOWHERE, Checkpoint

__all__ = ["Problem", "add_gradient_", "handing_over", "steps_left", "unscaled_"]


@dataclass(frozen=True, eq=False)
class Problem:
    """One task's localization problem.

    Nothing here is a copy of the base: the model carries it. A localizer that moves the model
    puts it back bit for bit, from what it keeps itself.

    Attributes:
        model: The model, at its base and in eval mode (no dropout, as in the published code).
        parameters: Its graftable parameters.
        tuned: Their values after fine-tuning; empty where no dense run was made.
        losses: The mean losses of the micro-batches of a step, computed one by one as the
            localizer walks through them.
        dev_score: Score of the model as it is now on dev, higher is better.
        train_score: The same on a part of train; only the paper mode looks at it.
        seed: Random choices of the localizer are a function of it.
        path: Σ −g·Δθ over the steps of the dense run, by name; empty where none was gathered.
        loss_scale: What losses are multiplied with for the backward pass, in fp16.
        checkpoint: Where the localization was left, if it was, and where its steps are offered.
        answers: One function a row of a step's batch: the row's logits, of shape (K,), and its
            own loss. None where single rows cannot be asked.
    """

    model: nn.Module
    parameters: Mapping[str, nn.Parameter]
    tuned: Parameters
    losses: Callable[[int], Sequence[Callable[[], Tensor]]]
    dev_score: Callable[[], float]
    train_score: Callable[[], float]
    seed: int
    path: Parameters = field(default_factory=dict)
    loss_scale: float = 1.0
    checkpoint: Checkpoint = NOWHERE
    answers: Callable[[int], Sequence[Callable[[], tuple[Tensor, Tensor]]]] | None = None

    @property
    def base(self) -> dict[str, Tensor]:
        """The base's values: the live weights themselves, as long as nobody moves them."""
        return {name: parameter.detach() for name, parameter in self.parameters.items()}

    @property
    def layout(self) -> Layout:
        """The graftable parameters' layout."""
        return Layout.of(self.parameters)

    def zeros(self) -> dict[str, Tensor]:
        """Make one fp32 score a coordinate, all zero."""
        return {
            name: torch.zeros_like(parameter, dtype=torch.float32, requires_grad=False)
            for name, parameter in self.parameters.items()
        }


def steps_left(problem: Problem, total: Parameters, *, steps: int) -> Iterator[int]:
    """Walk through the steps of a sum, from where it was left; each is offered when it is added.

    Args:
        problem: The task's problem.
        total: The sum, zero at first and written to between steps; gets the sum that was left.
        steps: Steps in all.
    """
    left = problem.checkpoint.load()
    first = 0
    if left is not None:
        copy_(total, left[0])
        first = left[1]["step"]
    for step in range(first, steps):
        yield step
        values = {"step": step + 1}
        problem.checkpoint.offer(lambda values=values: (total, values))


def add_gradient_(problem: Problem, step: int, *, into: Callable[[str, Tensor], None]) -> None:
    """Hand the gradient of a step's loss to `into`, in parts, and free each part at once.

    The loss is the mean over the step's micro-batches of their mean losses. Each micro-batch
    gives one part a parameter, during its backward pass, as soon as the part is complete; the
    parts of a parameter add up to its gradient. So no more than one parameter's gradient lives
    at a time.
    """
    micro = problem.losses(step)
    with handing_over(problem, into=into):
        for loss in micro:
            (loss() / len(micro) * problem.loss_scale).backward()


@contextmanager
def handing_over(problem: Problem, *, into: Callable[[str, Tensor], None]) -> Iterator[None]:
    """Hand gradients to `into`, parameter by parameter, in the backward passes of a `with` block.

    Each is divided by the problem's loss scale and freed at once.
    """

    def giver(name: str) -> Callable[[Tensor], None]:
        def give(parameter: Tensor) -> None:
            if parameter.grad is not None:
                gradient, parameter.grad = parameter.grad, None
                into(name, unscaled_(problem, gradient))

        return give

    hooks = [
        parameter.register_post_accumulate_grad_hook(giver(name))
        for name, parameter in problem.parameters.items()
    ]
    for parameter in problem.parameters.values():
        parameter.grad = None
    try:
        with torch.enable_grad():
            yield
    finally:
        for hook in hooks:
            hook.remove()


def unscaled_(problem: Problem, gradient: Tensor) -> Tensor:
    """Divide a gradient by the problem's loss scale.

    Raises:
        DivergedError: If the scale was too large for it.
    """
    if problem.loss_scale == 1.0:
        return gradient
    if not bool(gradient.isfinite().all()):
        raise DivergedError(
            f"a gradient is infinite in fp16 at the loss scale {problem.loss_scale:g} with which "
            "localization began; use precision bf16 or fp32"
        )
    return gradient.mul_(1 / problem.loss_scale)
