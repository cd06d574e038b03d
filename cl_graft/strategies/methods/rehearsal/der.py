"""DER and DER++: the logits of kept rows are held near those that they had when they were kept."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from avalanche.training.supervised.der import DER, ClassBalancedBufferWithLogits
from avalanche.training.templates import SupervisedTemplate
from torch import Tensor, nn

from cl_graft.strategies import StrategyInputs, count_stored, register_strategy, setting
from cl_graft.strategies.method import StreamShape
from cl_graft.strategies.methods.rehearsal.row_buffers import (
    batch_setting,
    memory_setting,
)

__all__ = ["DarkExperienceReplay", "LogitsOfTasks"]


class LogitsOfTasks(ClassBalancedBufferWithLogits):
    """Avalanche's buffer of rows and logits, which asks the model with the task label."""

    def update(self, strategy: Any, **kwargs: Any) -> None:
        """Take rows of the experience, with the logits of its own head."""
        label = int(strategy.experience.task_label)
        labelled = _Labelled(strategy.model, label)
        asked = SimpleNamespace(
            experience=strategy.experience,
            model=labelled,
            train_mb_size=strategy.train_mb_size,
            device=strategy.device,
        )
        super().update(asked, **kwargs)  # pyright: ignore[reportArgumentType]


class _Labelled(nn.Module):
    """A model that answers with the head of one task."""

    def __init__(self, model: nn.Module, label: int) -> None:
        super().__init__()
        self.model = model
        self.label = label
        self.training = model.training

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x, torch.full((len(x),), self.label))


@register_strategy(
    "der",
    family="rehearsal",
    source="Buzzega et al., 2020, https://arxiv.org/abs/2004.07211; Avalanche's DER (DER++ with "
    "beta above 0)",
    adds="rows with their logits, `mem_size` in all",
    kinds="classification",
)
class DarkExperienceReplay:
    """Hold the logits that kept rows had when they were learned, and train on their targets."""

    mem_size: int = memory_setting()
    batch_size_mem: int = batch_setting()
    alpha: float = setting(
        0.1, "Weight of the distance from kept logits.", least=0, grid=(0.1, 0.3, 1.0)
    )
    beta: float = setting(0.5, "Weight of the loss on kept rows.", least=0, grid=(0.5, 1.0))

    storage_bytes = count_stored(DER, "storage_policy.buffer")

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return Avalanche's `DER` with `LogitsOfTasks`."""
        # Logits of all tasks are kept in one table, so all are as wide as the widest task's.
        inputs.model.max_class_label = max(task.task.num_outputs for task in inputs.stream.tasks)
        strategy = inputs.sgd_strategy(
            DER,
            whole_batches=True,
            mem_size=self.mem_size,
            batch_size_mem=self.batch_size_mem or inputs.first_schedule.batch_size,
            alpha=self.alpha,
            beta=self.beta,
        )
        strategy.storage_policy = LogitsOfTasks(self.mem_size, adaptive_size=True)
        return strategy

    def task_bytes(self, shape: StreamShape) -> float:
        """Return the bytes of the kept rows with their logits."""
        return self.mem_size * (shape.row_bytes + 4 * shape.classes) / shape.tasks
