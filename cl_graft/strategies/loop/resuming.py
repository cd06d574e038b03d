"""Resuming: a plugin that resumes a strategy's loop at the step where another process left it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from avalanche.core import SupervisedPlugin

from cl_graft.errors import InputError
from cl_graft.grafts.graft import copy_
from cl_graft.runtime.checkpoints import (
    NO_CHECKPOINT,
    Checkpoints,
    Resumable,
    State,
    join_tensors,
    load_optimizer_,
    optimizer_state,
    select_tensors,
)
from cl_graft.strategies.loop.text_batches import BatchLoader
from cl_graft.strategies.strategy import Strategy

LOOP = "loop"
"""The kind of the keys that `make_loop_key` makes."""


class Resuming(SupervisedPlugin, supports_distributed=False):
    """Offer the state of a strategy's loop to checkpoints after every step, and resume from it.

    Plugins that are not `Resumable` must hold nothing from one step to the next, and the batches
    must be those of `TextBatches`. Give it after all plugins that set the training up.

    Runs at: before_training_exp, before_training_epoch, before_training_iteration,
    after_training_epoch, after_eval_iteration.
    """

    def __init__(
        self, checkpoints: Checkpoints, extra_state: Callable[[], Mapping[str, Any]]
    ) -> None:
        super().__init__()
        self._checkpoints = checkpoints
        self._extra_state = extra_state
        self._checkpoint = NO_CHECKPOINT
        self._clock: dict[str, int] | None = None
        self._moved = False

    def before_training_exp(self, strategy: Strategy, **kwargs: Any) -> None:
        """Restore the state of the loop, if another process was interrupted in it."""
        self._clock, self._moved, self._checkpoint = None, False, NO_CHECKPOINT
        if not isinstance(strategy.dataloader, BatchLoader):
            return
        self._checkpoint = self._checkpoints.at(make_loop_key(strategy.clock.train_exp_counter))
        left = self._checkpoint.load()
        if left is None:
            return
        tensors, values = left
        held, saved = _list_trained(strategy), select_tensors(tensors, "held")
        copy_(held, {number: saved[number] for number in held})
        load_optimizer_(
            strategy.optimizer, select_tensors(tensors, "optimizer"), values["optimizer"]
        )
        plugins = dict(_resumable(strategy))
        if set(plugins) != set(values["plugins"]):
            raise InputError(
                "the checkpoint of this loop was written by another version of cl_graft, whose "
                f"plugins are {sorted(values['plugins'])}, not {sorted(plugins)}; go on with that "
                "one, or choose another output folder"
            )
        for name, plugin in plugins.items():
            plugin.load_loop_state_(select_tensors(tensors, name), values["plugins"][name])
        self._clock = clock = values["clock"]
        strategy.dataloader.skip_(clock["train_exp_iterations"])
        strategy.train_epochs -= clock["train_exp_epochs"]
        if values["over"]:
            strategy.stop_training()

    def before_training_epoch(self, strategy: Strategy, **kwargs: Any) -> None:
        """Set the clock, which Avalanche resets after `before_training_exp`."""
        if self._clock is not None:
            set_clock_(strategy, self._clock)
            self._clock = None

    def before_training_iteration(self, strategy: Strategy, **kwargs: Any) -> None:
        """Offer the state after the previous step, whose values are logged by now."""
        if self._moved:
            self._checkpoint.offer(lambda: self._state(strategy, over=False))
            # `NO_CHECKPOINT` does not check whether the process was asked to stop.
            self._checkpoints.poll()
        self._moved = True

    def after_training_epoch(self, strategy: Strategy, **kwargs: Any) -> None:
        """Offer the state after the last step."""
        if self._moved and strategy._stop_training:
            self._checkpoint.offer(lambda: self._state(strategy, over=True), last=True)

    def after_eval_iteration(self, strategy: Strategy, **kwargs: Any) -> None:
        """Stop the process if it was asked to."""
        self._checkpoints.poll()

    def _state(self, strategy: Strategy, *, over: bool) -> State:
        moments, rates = optimizer_state(strategy.optimizer)
        plugins = {name: plugin.loop_state() for name, plugin in _resumable(strategy)}
        tensors = join_tensors(
            held=_list_trained(strategy),
            optimizer=moments,
            **{name: state[0] for name, state in plugins.items()},
        )
        values = {
            "clock": read_clock(strategy),
            "over": over,
            "optimizer": rates,
            "plugins": {name: state[1] for name, state in plugins.items()},
            **self._extra_state(),
        }
        return tensors, values


def read_clock(strategy: Strategy) -> dict[str, int]:
    """Return the counters of a strategy, by name."""
    return {name: n for name, n in vars(strategy.clock).items() if isinstance(n, int)}


def set_clock_(strategy: Strategy, clock: Mapping[str, int]) -> None:
    """Set the counters of a strategy to what `read_clock` returned."""
    for name, count in clock.items():
        setattr(strategy.clock, name, count)


def make_loop_key(learned: int) -> str:
    """Return the checkpoint key of the loop that trains the next task after `learned` tasks."""
    return f"{LOOP}-{learned}"


def _list_trained(strategy: Strategy) -> dict[str, torch.Tensor]:
    """Return the values that the loop trains, by their number among the optimiser's parameters."""
    given = (p for group in strategy.optimizer.param_groups for p in group["params"])
    return {str(number): p.detach() for number, p in enumerate(given) if p.requires_grad}


def _resumable(strategy: Strategy) -> list[tuple[str, Resumable]]:
    """Return the plugins with a state in the middle of the loop, by name and place."""
    return [
        (f"{type(plugin).__name__}{number}", plugin)
        for number, plugin in enumerate(strategy.plugins)
        if isinstance(plugin, Resumable)
    ]
