"""How an Avalanche strategy is run on a stream: budgets of each task, progress, curves."""

from __future__ import annotations

import math
from typing import Any

from avalanche.core import SupervisedPlugin
from avalanche.training.templates import SupervisedTemplate

from cl_graft.runtime.progress import Progress, Step
from cl_graft.strategies import KeepBest, LinearDecay, StopAfter
from cl_graft.training.fine_tuning import FineTuning

__all__ = ["Reporter", "set_schedule_"]


class Reporter(SupervisedPlugin, supports_distributed=True):
    """Report where a run stands.

    Runs at: after_training_iteration, before_eval, after_eval_exp.

    Args:
        progress: Called after every step.
        strategy: The strategy's name.
        seed: The run's seed.

    Attributes:
        task: The task that is learned now.
        steps: The optimiser steps of its training.
    """

    def __init__(self, progress: Progress, *, strategy: str, seed: int) -> None:
        super().__init__()
        self.task = ""
        self.steps = 0
        self._progress = progress
        self._strategy = strategy
        self._seed = seed
        self._evaluated = 0

    def phase(self, phase: str, step: int, steps: int) -> None:
        """Report a step of a phase of the strategy's own."""
        self._progress(Step(phase, step, steps, self.task, self._strategy, self._seed))

    def after_training_iteration(self, strategy: Any, **kwargs: Any) -> None:
        """Report a step of the strategy's loop."""
        self.phase("train", strategy.clock.train_exp_iterations + 1, self.steps)

    def before_eval(self, strategy: Any, **kwargs: Any) -> None:
        """Start counting."""
        self._evaluated = 0

    def after_eval_exp(self, strategy: Any, **kwargs: Any) -> None:
        """Report a task's evaluation."""
        self._evaluated += 1
        self.phase("evaluate", self._evaluated, len(strategy.current_eval_stream))


def set_schedule_(
    strategy: SupervisedTemplate, stop: StopAfter, schedule: FineTuning, *, rows: int
) -> None:
    """Give a strategy the steps, batch size and learning rate of the next experience.

    Args:
        strategy: The strategy; its epochs are set so that the steps fit in.
        stop: The plugin that stops it.
        schedule: What to set.
        rows: Training rows of the experience.
    """
    batches = math.ceil(rows / schedule.batch_size)
    stop.steps = schedule.steps
    strategy.train_mb_size = schedule.batch_size
    strategy.train_epochs = math.ceil(schedule.steps / batches)
    for group in strategy.optimizer.param_groups:
        group["lr"] = schedule.lr
    for plugin in strategy.plugins:
        if isinstance(plugin, LinearDecay):
            plugin.lr, plugin.steps = schedule.lr, schedule.steps
        elif isinstance(plugin, KeepBest):
            plugin.steps, plugin.evaluations = schedule.steps, schedule.evaluations
