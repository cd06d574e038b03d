"""Protocols of checkpoints, and the state of a phase that is interrupted and resumed.

A phase loads its state once, when it begins, and offers its state after every step. Every random
choice is a function of (seed, task, phase, step), so a state holds no random generators.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

State = tuple[Mapping[str, Tensor], Mapping[str, Any]]
"""Tensors by name, and values that JSON can hold."""


class Checkpoint(Protocol):
    """The place where the state of one phase is kept."""

    def load(self) -> State | None:
        """Return the state in which the phase was interrupted; None if there is none."""

    def offer(self, state: Callable[[], State], *, last: bool = False) -> None:
        """Keep the state that a function returns, if it is time to.

        Its tensors may be those that train: they are read at once and never changed. The last offer
        of a phase is kept earlier than others.
        """


class Checkpoints(Protocol):
    """The places where the states of a run's phases are kept."""

    def at(self, key: str) -> Checkpoint:
        """Return the place of a phase; the key is its kind, a hyphen and a hash of its inputs."""
        ...

    def poll(self) -> None:
        """Stop the process if it was asked to stop; nothing is kept here."""


@runtime_checkable
class Resumable(Protocol):
    """A plugin whose state a checkpoint of the strategy's loop includes."""

    def loop_state(self) -> State:
        """Return the state."""
        ...

    def load_loop_state_(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Load a state, before the loop starts."""


class _NoCheckpoint:
    def load(self) -> State | None:
        return None

    def offer(self, state: Callable[[], State], *, last: bool = False) -> None:
        del state, last


NO_CHECKPOINT: Checkpoint = _NoCheckpoint()  # of a phase that is not kept


class NoCheckpoints:
    """Checkpoints of a run that cannot be resumed: nothing is kept, but the process may stop."""

    def __init__(self, poll: Callable[[], None]) -> None:
        self.poll = poll

    def at(self, key: str) -> Checkpoint:
        """Return a place that keeps nothing."""
        del key
        return NO_CHECKPOINT


NO_CHECKPOINTS: Checkpoints = NoCheckpoints(poll=lambda: None)
"""The checkpoints of a run that keeps none and cannot be asked to stop."""


def join_tensors(**groups: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Join groups of tensors under ``group/name``; `select_tensors` returns a group again."""
    return {f"{group}/{name}": t for group, held in groups.items() for name, t in held.items()}


def select_tensors(tensors: Mapping[str, Tensor], group: str) -> dict[str, Tensor]:
    """Return one of the groups that `join_tensors` joined."""
    start = f"{group}/"
    return {name[len(start) :]: t for name, t in tensors.items() if name.startswith(start)}


def optimizer_state(optimizer: torch.optim.Optimizer) -> State:
    """Return the state of an optimiser; its parameters are named by their positions."""
    tensors: dict[str, Tensor] = {}
    numbers: dict[str, Any] = {}
    for number, parameter in enumerate(_list_parameters(optimizer)):
        for name, value in optimizer.state.get(parameter, {}).items():
            into = tensors if isinstance(value, Tensor) else numbers
            into[f"{number}/{name}"] = value
    return tensors, {"numbers": numbers, "lr": [group["lr"] for group in optimizer.param_groups]}


def load_optimizer_(
    optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], values: Mapping[str, Any]
) -> None:
    """Load what `optimizer_state` returned of an optimiser with the same parameters."""
    held = _list_parameters(optimizer)
    for key, value in {**tensors, **values["numbers"]}.items():
        number, name = key.split("/", 1)
        parameter = held[int(number)]
        # Step counts stay on the CPU, where torch keeps them.
        moves = isinstance(value, Tensor) and name != "step"
        optimizer.state[parameter][name] = value.to(parameter.device) if moves else value
    for group, lr in zip(optimizer.param_groups, values["lr"], strict=True):
        group["lr"] = lr


def _list_parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
