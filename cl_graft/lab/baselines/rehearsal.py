"""Rehearsal: rows of earlier tasks are kept and trained on again (Avalanche's plugins)."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from avalanche.training.plugins import AGEMPlugin, GDumbPlugin, ReplayPlugin
from avalanche.training.supervised.der import DER, ClassBalancedBufferWithLogits
from avalanche.training.supervised.er_ace import ER_ACE
from avalanche.training.templates import SupervisedTemplate
from torch import Tensor, nn

from cl_graft.errors import InputError
from cl_graft.strategies import StrategyInputs, count_stored, register_strategy, setting
from cl_graft.strategies.method import StreamShape
from cl_graft.strategies.strategy import Strategy


@dataclass(frozen=True, kw_only=True)
class SharedRows:
    """The part of methods that keep a number of rows of all tasks together."""

    mem_size: int = setting(200, "Rows kept, of all tasks together.", min_value=1, is_size=True)
    batch_size_mem: int = setting(0, "Kept rows a step; 0: as many as new ones.", min_value=0)

    def task_bytes(self, shape: StreamShape) -> float:
        """Return the bytes of the kept rows."""
        return self.mem_size * shape.row_bytes / shape.tasks


def check_batch_size(method: str, setting_name: str, *, rows: int, tasks: int) -> None:
    """Refuse a batch size below the number of tasks, for methods that take rows of each."""
    if rows < tasks:
        raise InputError(
            f"{method} takes rows of each of {tasks} tasks into a batch: {setting_name} must be at "
            f"least {tasks}, got {rows}"
        )


@register_strategy(
    "replay",
    family="rehearsal",
    source="Rolnick et al., 2018, https://arxiv.org/abs/1811.11682; Avalanche's Replay",
    adds="rows, `mem_size` in all",
    kinds="one",
)
class Replay(SharedRows):
    """Train on as many kept rows of earlier tasks in a step as on new ones."""

    storage_bytes = count_stored(ReplayPlugin, "storage_policy.buffer")

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return Naive with Avalanche's `ReplayPlugin`."""
        plugin = ReplayPlugin(mem_size=self.mem_size, batch_size_mem=self.batch_size_mem or None)
        return inputs.naive(plugin)


@register_strategy(
    "gdumb",
    family="rehearsal",
    source="Prabhu et al., 2020, https://doi.org/10.1007/978-3-030-58536-5_31; Avalanche's GDumb: "
    "on the kept rows alone, from the base again for every task",
    adds="rows, `mem_size` in all; the first task a copy of the base",
    kinds="classification",
)
class GDumb:
    """Keep rows of all tasks, and train on these alone from the base."""

    mem_size: int = setting(200, "Rows kept, of all tasks together.", min_value=1)

    storage_bytes = count_stored(GDumbPlugin, "storage_policy.buffer", "init_model")

    def check_stream(self, shape: StreamShape) -> None:
        """Refuse batches with fewer rows than there are tasks."""
        check_batch_size("gdumb", "batch_size", rows=shape.batch_size, tasks=shape.tasks)

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return Naive with Avalanche's `GDumbPlugin`."""
        return inputs.naive(GDumbPlugin(mem_size=self.mem_size))


class AGEMOnHeads(AGEMPlugin):
    """Avalanche's `AGEMPlugin`, whose projection reaches the heads of finished tasks, too."""

    def after_backward(self, strategy: Strategy, **kwargs: Any) -> None:
        """Give heads without a gradient one of 0, and project."""
        for parameter in strategy.model.parameters():
            if parameter.requires_grad and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        super().after_backward(strategy, **kwargs)


@register_strategy(
    "agem",
    family="rehearsal",
    source="Chaudhry et al., 2019, https://arxiv.org/abs/1812.00420; Avalanche's AGEM",
    adds="`patterns_per_experience` rows",
    kinds="one",
)
class AGEM:
    """Project the gradient so that it does not harm kept rows of all earlier tasks on average."""

    patterns_per_experience: int = setting(64, "Rows kept of each task.", min_value=1, is_size=True)
    sample_size: int = setting(64, "Kept rows a step, of all tasks together.", min_value=1)

    storage_bytes = count_stored(AGEMPlugin, "buffers")

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return Naive with `AGEMOnHeads`."""
        return inputs.naive(AGEMOnHeads(self.patterns_per_experience, self.sample_size))

    def check_stream(self, shape: StreamShape) -> None:
        """Refuse batches of kept rows that cannot have one of each earlier task."""
        check_batch_size("agem", "sample_size", rows=self.sample_size, tasks=shape.tasks - 1)

    def task_bytes(self, shape: StreamShape) -> float:
        """Return the bytes of the rows kept of a task."""
        return self.patterns_per_experience * shape.row_bytes


class LogitsOfTasks(ClassBalancedBufferWithLogits):
    """Avalanche's buffer of rows and logits, which asks the model with the task label."""

    def update(self, strategy: Strategy, **kwargs: Any) -> None:
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
class DarkExperienceReplay(SharedRows):
    """Hold the logits that kept rows had when they were learned, and train on their targets."""

    alpha: float = setting(
        0.1, "Weight of the distance from kept logits.", min_value=0, grid=(0.1, 0.3, 1.0)
    )
    beta: float = setting(0.5, "Weight of the loss on kept rows.", min_value=0, grid=(0.5, 1.0))

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
        return super().task_bytes(shape) + self.mem_size * 4 * shape.classes / shape.tasks


@register_strategy(
    "er_ace",
    family="rehearsal",
    source="Caccia et al., 2022, https://arxiv.org/abs/2104.05025; Avalanche's ER_ACE",
    adds="rows, `mem_size` in all",
    kinds="classification",
)
class ERACE(SharedRows):
    """Train on kept rows beside the new ones, whose loss sees their own classes alone."""

    storage_bytes = count_stored(ER_ACE, "storage_policy.buffer")

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return Avalanche's `ER_ACE`."""
        return inputs.sgd_strategy(
            ER_ACE,
            whole_batches=True,
            mem_size=self.mem_size,
            batch_size_mem=self.batch_size_mem or inputs.first_schedule.batch_size,
        )
