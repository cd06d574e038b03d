"""`LocalizerInputs`: what a localizer gets of a model and a task; and its gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from cl_graft.errors import DivergedError
from cl_graft.grafts.graft import copy_
from cl_graft.grafts.region import Layout, Parameters
from cl_graft.runtime.checkpoints import NO_CHECKPOINT, Checkpoint


def _refuse_rows(step: int) -> Sequence[Callable[[], Tensor]]:
    raise ValueError("this localizer needs the losses of single rows, `row_losses`: there are none")


@dataclass(frozen=True, eq=False)
class LocalizerInputs:
    """The base, the fine-tuned weights and the task's functions, as a localizer gets them.

    The base is the model itself, not a copy. A localizer that moves the model puts it back bit for
    bit, from what it copied before.

    Attributes:
        model: The model, at its base and in eval mode (no dropout, as in the published code).
        parameters: The graftable parameters, by name.
        tuned: Values of the parameters after fine-tuning, by name; empty without a dense run.
        losses: Function of a step, from 0, that returns one function for each micro-batch, which
            computes the mean loss of its rows. Calling one after the other keeps one micro-batch in
            memory at a time.
        dev_score: Function that scores the model as it is now on dev, higher is better.
        train_score: Function that scores it on a part of the training rows, for `paper_mask`.
        seed: Seed of the localizer's random choices.
        path: Σ −g·Δθ over the steps of the dense run, by name; empty if it was not summed up.
        loss_scale: Factor of the loss in the backward pass, for fp16; 1 otherwise.
        checkpoint: Source of an interrupted localization's state, and target of its steps.
        row_losses: Function of a step, from 0, that returns one function for each row of its batch,
            which computes the row's loss. By default it raises a ValueError.
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
    checkpoint: Checkpoint = NO_CHECKPOINT
    row_losses: Callable[[int], Sequence[Callable[[], Tensor]]] = _refuse_rows

    @property
    def base(self) -> dict[str, Tensor]:
        """Values of the base by name, sharing memory with the model: they move with it."""
        return {name: parameter.detach() for name, parameter in self.parameters.items()}

    @property
    def layout(self) -> Layout:
        """Layout of the graftable parameters."""
        return Layout.of(self.parameters)

    def zeros(self) -> dict[str, Tensor]:
        """Return one fp32 zero for each coordinate, by name."""
        return {
            name: torch.zeros_like(parameter, dtype=torch.float32, requires_grad=False)
            for name, parameter in self.parameters.items()
        }


def remaining_steps(
    inputs: LocalizerInputs,
    state: Parameters,
    *,
    steps: int,
    values: dict[str, float] | None = None,
) -> Iterator[int]:
    """Yield the steps that remain; save `state` and `values`, which the caller changes."""
    saved, first, numbers = inputs.checkpoint.load(), 0, {} if values is None else values
    if saved is not None:
        copy_(state, saved[0])
        numbers.update({name: saved[1][name] for name in numbers})
        first = saved[1]["step"]
    for step in range(first, steps):
        yield step
        done = {**numbers, "step": step + 1}
        inputs.checkpoint.offer(lambda done=done: (state, done))


def add_gradient_(
    inputs: LocalizerInputs, step: int, *, into: Callable[[str, Tensor], object]
) -> None:
    """Hand the gradient of a step's loss, the mean over micro-batches, to `into`.

    `into(name, gradient)` is called once a parameter and micro-batch, during the backward pass.
    Each part is freed at once, so that one parameter's gradient is in memory at a time.
    """
    micro = inputs.losses(step)
    with gradient_hooks(inputs, into=into):
        for loss in micro:
            (loss() / len(micro) * inputs.loss_scale).backward()


def mean_gradient(inputs: LocalizerInputs, step: int) -> dict[str, Tensor]:
    """Return the gradient of a step's loss, fp32, by name; those of all parameters are held."""
    total = inputs.zeros()
    add_gradient_(inputs, step, into=lambda name, part: total[name].add_(part))
    return total


@contextmanager
def gradient_hooks(
    inputs: LocalizerInputs, *, into: Callable[[str, Tensor], object]
) -> Iterator[None]:
    """Hand gradients of backward passes in a `with` block to `into`, one parameter at a time."""

    def hook_for(name: str) -> Callable[[Tensor], None]:
        def hand_over(parameter: Tensor) -> None:
            if parameter.grad is not None:
                gradient, parameter.grad = parameter.grad, None
                into(name, unscale_(inputs, gradient))

        return hand_over

    hooks = [
        parameter.register_post_accumulate_grad_hook(hook_for(name))
        for name, parameter in inputs.parameters.items()
    ]
    for parameter in inputs.parameters.values():
        parameter.grad = None
    try:
        with torch.enable_grad():
            yield
    finally:
        for hook in hooks:
            hook.remove()


def unscale_(inputs: LocalizerInputs, gradient: Tensor) -> Tensor:
    """Divide a gradient by the loss scale, in place."""
    if inputs.loss_scale == 1.0:
        return gradient
    if not bool(gradient.isfinite().all()):
        raise DivergedError(
            f"a gradient is infinite in fp16 at the loss scale {inputs.loss_scale:g} with which "
            "localization began; use precision bf16 or fp32"
        )
    return gradient.mul_(1 / inputs.loss_scale)
