"""MixedRows: training on the rows of several tasks, shuffled together.

Avalanche's own `Cumulative` and `JointTraining` put rows of every task into each batch, so they
need batches of as many rows as there are tasks, and `JointTraining` can be called only once.
"""

from __future__ import annotations

from typing import Any

import torch
from avalanche.core import SupervisedPlugin

from cl_graft.metrics.task_score import NO_TARGET
from cl_graft.runtime.batching import join_rows
from cl_graft.strategies import StrategyInputs, count_bytes
from cl_graft.strategies.loop.best_step import KeepBest
from cl_graft.strategies.loop.text_batches import shuffle_batches
from cl_graft.training.examples import Examples
from cl_graft.training.passes import Passes

__all__ = ["MixedRows"]


class MixedRows(SupervisedPlugin, supports_distributed=False):
    """Train on the rows of several experiences, shuffled together, in place of the one at hand.

    Runs at: before_training_exp. Give it after `TextBatches`, whose loader it replaces.

    Args:
        inputs: Inputs of the strategy; its stream is one that `text_stream` made.
        so_far: Whether to take only the tasks up to the one in training; otherwise all.

    Attributes:
        passes: Rows that went through the model, by task label and phase, where nothing trains.
    """

    def __init__(self, inputs: StrategyInputs, *, so_far: bool) -> None:
        super().__init__()
        self.stream = list(inputs.stream.benchmark.train_stream)
        self.so_far = so_far
        self.seed = inputs.seed
        self.group_by_length = inputs.first_schedule.group_by_length
        self.passes: dict[int, dict[str, Passes]] = {}

    def before_training_exp(self, strategy: Any, **kwargs: Any) -> None:
        """Set the loader, or stop the training if all tasks were learned with the first one."""
        if not self.so_far and strategy.clock.train_exp_counter:
            self.passes[int(strategy.experience.task_label)] = {"train": Passes()}
            strategy.stop_training()
            return
        count = strategy.clock.train_exp_counter + 1 if self.so_far else len(self.stream)
        chosen = self.stream[:count]
        inputs = torch.cat([experience.encoded[0] for experience in chosen])
        targets = join_rows([experience.encoded[1] for experience in chosen], fill=NO_TARGET)
        labels = torch.cat([torch.full((len(e.encoded[1]),), int(e.task_label)) for e in chosen])
        for plugin in strategy.plugins:
            if isinstance(plugin, KeepBest):
                plugin.labels = [int(experience.task_label) for experience in chosen]
        strategy.dataloader = shuffle_batches(
            Examples(range(len(targets)), tensors=(inputs, targets)),
            labels,
            size=strategy.train_mb_size,
            seed=self.seed,
            group_by_length=self.group_by_length,
        )

    def stored_bytes(self, tasks: int) -> int:
        """Return the bytes of the rows of the first tasks."""
        return sum(count_bytes(experience.encoded) for experience in self.stream[:tasks])
