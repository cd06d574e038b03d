"""TaskSchedules: steps, batch size and learning rate of every task, in any strategy's loop."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from cl_graft.strategies.loop.best_step import KeepBest
from cl_graft.strategies.loop.budgets import LinearDecay, StopAfter
from cl_graft.training.settings import FineTuning

__all__ = ["TaskSchedules"]


class TaskSchedules(StopAfter, supports_distributed=True):
    """Train every task with the steps, batch size and learning rate of its own schedule.

    `LinearDecay` and `KeepBest` get the task's schedule, too.

    Runs at: before_train_dataset_adaptation, after_training_iteration, after_training_exp.

    Args:
        schedules: The schedule of each task, by task label.
    """

    def __init__(self, schedules: Mapping[int, FineTuning]) -> None:
        super().__init__(steps=1)
        self.schedules = dict(schedules)

    def before_train_dataset_adaptation(self, strategy: Any, **kwargs: Any) -> None:
        """Set the task's schedule, before the strategy makes its loader."""
        schedule = self.schedules[int(strategy.experience.task_label)]
        batches = math.ceil(len(strategy.experience.dataset) / schedule.batch_size)
        self.steps = schedule.steps
        strategy.train_mb_size = schedule.batch_size
        strategy.train_epochs = math.ceil(schedule.steps / batches)
        for group in strategy.optimizer.param_groups:
            group["lr"] = schedule.lr
        for plugin in strategy.plugins:
            if isinstance(plugin, LinearDecay):
                plugin.lr, plugin.steps = schedule.lr, schedule.steps
            elif isinstance(plugin, KeepBest):
                plugin.steps, plugin.evaluations = schedule.steps, schedule.evaluations
