"""Taking up a phase in its middle.

A phase (a dense run, a localization, a strategy's own loop) asks once for the state in which it was
left and offers its state after every step. What becomes of an offer is decided elsewhere: most are
passed over, and where nothing is kept `NOWHERE` stands. As every random choice is a function of
(seed, task, phase, step), a state needs no random states: step s of a phase taken up is step s of
the phase that was never left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

__all__ = [
    "NOWHERE",
    "Checkpoint",
    "Checkpoints",
    "Resumable",
    "State",
    "Unkept",
    "joined",
    "load_optimizer_",
    "optimizer_state",
    "part_of",
]

State = tuple[Mapping[str, Tensor], Mapping[str, Any]]
"""Tensors by name, and facts that JSON can hold."""


class Checkpoint(Protocol):
    """Where one phase is kept while it goes on."""

    def load(self) -> State | None:
        """Return the state in which the phase was left; None if it has to begin."""
        ...

    def offer(self, state: Callable[[], State], *, last: bool = False) -> None:
        """Keep what `state` returns, if it is time to.

        Args:
            state: Its tensors are the live ones: they are read at once and never changed.
            last: Whether the phase is over but for what is not offered.
        """
        ...


class Checkpoints(Protocol):
    """Where the phases of a run are kept."""

    def at(self, key: str) -> Checkpoint:
        """Return the place of a phase, named by its kind, a hyphen and what determines it."""
        ...

    def poll(self) -> None:
        """Stop the process here, where nothing can be kept, if it was asked to stop."""
        ...


@runtime_checkable
class Resumable(Protocol):
    """A plugin with a state of its own in the middle of a strategy's loop."""

    def loop_state(self) -> State:
        """Return the state."""
        ...

    def load_loop_state_(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Take a state over, when the loop is about to start."""
        ...


class _Nowhere:
    """Keeps nothing."""

    def load(self) -> State | None:
        return None

    def offer(self, state: Callable[[], State], *, last: bool = False) -> None:
        del state, last


NOWHERE: Checkpoint = _Nowhere()
"""The checkpoint of a phase that is not kept."""


class Unkept:
    """Checkpoints of a run that cannot be taken up: nothing is kept, but the process may stop.

    Args:
        poll: Stops the process if it was asked to stop.
    """

    def __init__(self, poll: Callable[[], None]) -> None:
        self.poll = poll

    def at(self, key: str) -> Checkpoint:
        """Return a place that keeps nothing."""
        del key
        return NOWHERE


def joined(**parts: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Put named groups of tensors into one; `part_of` takes them out again."""
    return {f"{group}/{name}": t for group, held in parts.items() for name, t in held.items()}


def part_of(tensors: Mapping[str, Tensor], group: str) -> dict[str, Tensor]:
    """Return the tensors that `joined` put in under a name."""
    start = f"{group}/"
    return {name[len(start) :]: t for name, t in tensors.items() if name.startswith(start)}


def optimizer_state(optimizer: torch.optim.Optimizer) -> State:
    """Return what an optimiser knows of the parameters that it holds, by their places."""
    tensors: dict[str, Tensor] = {}
    numbers: dict[str, Any] = {}
    for place, parameter in enumerate(_held(optimizer)):
        for name, value in optimizer.state.get(parameter, {}).items():
            if isinstance(value, Tensor):
                tensors[f"{place}/{name}"] = value
            else:
                numbers[f"{place}/{name}"] = value
    return tensors, {"numbers": numbers, "lr": [group["lr"] for group in optimizer.param_groups]}


def load_optimizer_(
    optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], values: Mapping[str, Any]
) -> None:
    """Give an optimiser the state that `optimizer_state` returned of one that holds the same."""
    held = _held(optimizer)
    for key, value in {**tensors, **values["numbers"]}.items():
        place, name = key.split("/", 1)
        parameter = held[int(place)]
        # Step counts stay on the CPU, where torch keeps them.
        moves = isinstance(value, Tensor) and name != "step"
        optimizer.state[parameter][name] = value.to(parameter.device) if moves else value
    for group, lr in zip(optimizer.param_groups, values["lr"], strict=True):
        group["lr"] = lr


def _held(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
