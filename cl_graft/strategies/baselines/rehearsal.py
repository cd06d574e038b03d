"""Rehearsal: rows of earlier tasks are kept and trained on again.

Avalanche's plugins, with adapters where they do not know task labels: DER's buffer asks the model
without them, MIR leaves out classes of the last batch (which share their numbers across tasks) and
differentiates frozen parameters, A-GEM and GEM project past the heads of finished tasks.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
from avalanche.core import SupervisedPlugin
from avalanche.training.plugins import AGEMPlugin, GDumbPlugin, GEMPlugin, ReplayPlugin
from avalanche.training.storage_policy import ClassBalancedBuffer
from avalanche.training.supervised.der import DER, ClassBalancedBufferWithLogits
from avalanche.training.supervised.er_ace import ER_ACE
from avalanche.training.templates import SupervisedTemplate
from avalanche.training.utils import cycle
from torch import Tensor, nn
from torch.utils.data import DataLoader

from cl_graft.errors import InputError
from cl_graft.strategies.baselines.stored_bytes import bytes_of, plugin_of, row_bytes
from cl_graft.strategies.method_settings import Setting
from cl_graft.strategies.method_size import Room, Size
from cl_graft.strategies.registered import StrategyRow
from cl_graft.strategies.strategy_inputs import StrategyInputs

__all__ = ["ROWS", "AGEMOnHeads", "GEMOnHeads", "InterferedReplay", "LogitsOfTasks"]


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
    """A model that is asked for one task."""

    def __init__(self, model: nn.Module, label: int) -> None:
        super().__init__()
        self.model = model
        self.label = label
        self.training = model.training

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x, torch.full((len(x),), self.label))


class InterferedReplay(SupervisedPlugin, supports_distributed=False):
    """Replay those of some kept rows whose loss the next step would raise most.

    Maximally Interfered Retrieval (Aljundi et al., 2019, https://arxiv.org/abs/1908.04742), as
    Avalanche's `MIRPlugin` but for parameters that are frozen and for classes that share their
    numbers across tasks.

    Runs at: before_backward, after_training_exp.

    Args:
        mem_size: Rows kept, of all tasks together, the same number of each class.
        subsample: Kept rows looked at in a step.
        batch_size_mem: Of these, rows added to the step.
    """

    def __init__(self, *, mem_size: int, subsample: int, batch_size_mem: int) -> None:
        super().__init__()
        self.subsample = subsample
        self.batch_size_mem = batch_size_mem
        self.storage_policy = ClassBalancedBuffer(max_size=mem_size, adaptive_size=True)
        self._batches: Iterator[Any] | None = None

    def before_backward(self, strategy: Any, **kwargs: Any) -> None:
        """Add the mean loss of the rows with the largest interference."""
        if self._batches is None:
            return
        inputs, targets, labels = (part.to(strategy.device) for part in next(self._batches))
        harm = self._interference(strategy, inputs, targets, labels)
        worst = harm.topk(min(self.batch_size_mem, len(harm))).indices
        answers = strategy.model(inputs[worst], labels[worst])
        strategy.loss = strategy.loss + strategy._criterion(answers, targets[worst])

    def after_training_exp(self, strategy: Any, **kwargs: Any) -> None:
        """Keep rows of the experience."""
        self.storage_policy.post_adapt(strategy, strategy.experience)
        buffer: Any = self.storage_policy.buffer
        self._batches = cycle(DataLoader(buffer, batch_size=self.subsample, shuffle=True))

    @torch.no_grad()
    def _interference(
        self, strategy: Any, inputs: Tensor, targets: Tensor, labels: Tensor
    ) -> Tensor:
        """Return how much a plain step on the batch would raise the loss of each row, (n,)."""

        def losses() -> Tensor:
            answers = strategy.model(inputs, labels)
            return nn.functional.cross_entropy(answers, targets, reduction="none")

        before = losses()
        lr = strategy.optimizer.param_groups[0]["lr"]
        trained = [p for p in strategy.model.parameters() if p.requires_grad]
        with torch.enable_grad():
            gradients = torch.autograd.grad(
                strategy.loss, trained, retain_graph=True, allow_unused=True
            )
        kept = [p.detach().clone() for p in trained]
        # A write in place would spoil the graph that the step still needs.
        for parameter, gradient in zip(trained, gradients, strict=True):
            if gradient is not None:
                parameter.data = parameter.data - lr * gradient
        after = losses()
        for parameter, values in zip(trained, kept, strict=True):
            parameter.data = values
        return after - before


class _OnHeads(SupervisedPlugin, supports_distributed=False):
    """Lets the plugin behind it project the heads of finished tasks too.

    Avalanche's plugins leave parameters without a gradient alone, so the part of the projection
    that lies in those heads would be missing, and the step would still harm the kept rows.
    """

    def after_backward(self, strategy: Any, **kwargs: Any) -> None:
        """Project."""
        for parameter in strategy.model.parameters():
            if parameter.requires_grad and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        super().after_backward(strategy, **kwargs)


class AGEMOnHeads(_OnHeads, AGEMPlugin):
    """Avalanche's `AGEMPlugin`, whose projection reaches the heads of finished tasks too."""


class GEMOnHeads(_OnHeads, GEMPlugin):
    """Avalanche's `GEMPlugin`, whose projection reaches the heads of finished tasks too."""


def _replay(inputs: StrategyInputs) -> SupervisedTemplate:
    own = inputs.settings
    return inputs.naive(
        ReplayPlugin(mem_size=own["mem_size"], batch_size_mem=own["batch_size_mem"] or None)
    )


def _gdumb(inputs: StrategyInputs) -> SupervisedTemplate:
    count, tasks = inputs.first_schedule.batch_size, len(inputs.stream.tasks)
    _check_share("gdumb", "batch_size", count, tasks)
    return inputs.naive(GDumbPlugin(mem_size=inputs.settings["mem_size"]))


def _agem(inputs: StrategyInputs) -> SupervisedTemplate:
    own = inputs.settings
    _check_share("agem", "sample_size", own["sample_size"], len(inputs.stream.tasks) - 1)
    plugin = AGEMOnHeads(own["patterns_per_experience"], own["sample_size"])
    return inputs.naive(plugin)


def _gem(inputs: StrategyInputs) -> SupervisedTemplate:
    own = inputs.settings
    return inputs.naive(GEMOnHeads(own["patterns_per_experience"], own["memory_strength"]))


def _mir(inputs: StrategyInputs) -> SupervisedTemplate:
    own = inputs.settings
    plugin = InterferedReplay(
        mem_size=own["mem_size"],
        subsample=own["subsample"],
        batch_size_mem=own["batch_size_mem"] or inputs.first_schedule.batch_size,
    )
    return inputs.naive(plugin, whole_batches=True)


def _der(inputs: StrategyInputs) -> SupervisedTemplate:
    own = inputs.settings
    # Logits of all tasks are kept in one table, so all are as wide as the widest task's.
    inputs.model.max_class_label = max(task.task.num_classes for task in inputs.stream.tasks)
    strategy = inputs.sgd_strategy(
        DER,
        whole_batches=True,
        mem_size=own["mem_size"],
        batch_size_mem=own["batch_size_mem"] or inputs.first_schedule.batch_size,
        alpha=own["alpha"],
        beta=own["beta"],
    )
    strategy.storage_policy = LogitsOfTasks(own["mem_size"], adaptive_size=True)
    return strategy


def _er_ace(inputs: StrategyInputs) -> SupervisedTemplate:
    own = inputs.settings
    return inputs.sgd_strategy(
        ER_ACE,
        whole_batches=True,
        mem_size=own["mem_size"],
        batch_size_mem=own["batch_size_mem"] or inputs.first_schedule.batch_size,
    )


def _check_share(strategy: str, what: str, rows: int, tasks: int) -> None:
    """Refuse batches that are to hold rows of every task but are smaller than that.

    Raises:
        InputError: If they are.
    """
    if rows < tasks:
        raise InputError(
            f"{strategy} takes rows of each of {tasks} tasks into a batch: {what} must be at "
            f"least {tasks}, got {rows}"
        )


def _rows_of_plugin(kind: type[Any]) -> Any:
    def held(strategy: SupervisedTemplate) -> int:
        return row_bytes([plugin_of(strategy, kind).storage_policy.buffer])

    return held


def _rows_of_strategy(strategy: Any) -> int:
    return row_bytes([strategy.storage_policy.buffer])


def _held_by_gdumb(strategy: SupervisedTemplate) -> int:
    plugin = plugin_of(strategy, GDumbPlugin)
    return row_bytes([plugin.storage_policy.buffer]) + bytes_of(plugin.init_model)


def _held_by_agem(strategy: SupervisedTemplate) -> int:
    return row_bytes(plugin_of(strategy, AGEMPlugin).buffers)


def _held_by_gem(strategy: SupervisedTemplate) -> int:
    plugin = plugin_of(strategy, GEMPlugin)
    return bytes_of([plugin.memory_x, plugin.memory_y, plugin.memory_tid])


def _row_bytes(room: Room, rows: int) -> float:
    return rows * room.row


def _shared_row_bytes(room: Room, rows: int) -> float:
    return rows * room.row / room.tasks


def _answered_row_bytes(room: Room, rows: int) -> float:
    return rows * (room.row + 4 * room.classes) / room.tasks


def _numbered_row_bytes(room: Room, rows: int) -> float:
    return rows * (room.row + 16)


_MEMORY = Setting("mem_size", 200, "Rows kept, of all tasks together.", least=1)
_BATCH = Setting("batch_size_mem", 0, "Kept rows a step; 0: as many as new ones.", least=0)
_PATTERNS = Setting("patterns_per_experience", 64, "Rows kept of each task.", least=1)
_FIXED = "rows, `mem_size` in all"
_IN_ALL = Size(_shared_row_bytes, "mem_size")

ROWS = (
    StrategyRow(
        "replay",
        "rehearsal",
        "Rolnick et al., 2018, https://arxiv.org/abs/1811.11682; Avalanche's Replay",
        "everything",
        "head",
        _replay,
        settings=(_MEMORY, _BATCH),
        holds=_rows_of_plugin(ReplayPlugin),
        adds=_FIXED,
        size=_IN_ALL,
    ),
    StrategyRow(
        "gdumb",
        "rehearsal",
        "Prabhu et al., 2020, https://doi.org/10.1007/978-3-030-58536-5_31; Avalanche's GDumb: "
        "on the kept rows alone, from the base again for every task",
        "everything",
        "head",
        _gdumb,
        settings=(_MEMORY,),
        holds=_held_by_gdumb,
        adds="rows, `mem_size` in all; the first task a copy of the base",
    ),
    StrategyRow(
        "agem",
        "rehearsal",
        "Chaudhry et al., 2019, https://arxiv.org/abs/1812.00420; Avalanche's AGEM",
        "everything",
        "head",
        _agem,
        settings=(
            _PATTERNS,
            Setting("sample_size", 64, "Kept rows a step, of all tasks together.", least=1),
        ),
        holds=_held_by_agem,
        adds="`patterns_per_experience` rows",
        size=Size(_row_bytes, "patterns_per_experience"),
    ),
    StrategyRow(
        "gem",
        "rehearsal",
        "Lopez-Paz and Ranzato, 2017, https://arxiv.org/abs/1706.08840; Avalanche's GEM",
        "everything",
        "head",
        _gem,
        settings=(
            _PATTERNS,
            Setting("memory_strength", 0.5, "Added towards backward transfer.", least=0),
        ),
        grid={"memory_strength": (0.0, 0.5, 1.0)},
        holds=_held_by_gem,
        adds="`patterns_per_experience` rows",
        size=Size(_numbered_row_bytes, "patterns_per_experience"),
        needs="quadprog",
    ),
    StrategyRow(
        "der",
        "rehearsal",
        "Buzzega et al., 2020, https://arxiv.org/abs/2004.07211; Avalanche's DER (DER++ with "
        "beta above 0)",
        "everything",
        "head",
        _der,
        settings=(
            _MEMORY,
            _BATCH,
            Setting("alpha", 0.1, "Weight of the distance from kept logits.", least=0),
            Setting("beta", 0.5, "Weight of the loss on kept rows.", least=0),
        ),
        grid={"alpha": (0.1, 0.3, 1.0), "beta": (0.5, 1.0)},
        holds=_rows_of_strategy,
        adds="rows with their logits, `mem_size` in all",
        size=Size(_answered_row_bytes, "mem_size"),
    ),
    StrategyRow(
        "er_ace",
        "rehearsal",
        "Caccia et al., 2022, https://arxiv.org/abs/2104.05025; Avalanche's ER_ACE",
        "everything",
        "head",
        _er_ace,
        settings=(_MEMORY, _BATCH),
        holds=_rows_of_strategy,
        adds=_FIXED,
        size=_IN_ALL,
    ),
    StrategyRow(
        "mir",
        "rehearsal",
        "Aljundi et al., 2019, https://arxiv.org/abs/1908.04742; after Avalanche's MIR",
        "everything",
        "head",
        _mir,
        settings=(
            _MEMORY,
            Setting("subsample", 50, "Kept rows looked at in a step.", least=1),
            Setting("batch_size_mem", 0, "Of these, rows added; 0: as many as new ones.", least=0),
        ),
        holds=_rows_of_plugin(InterferedReplay),
        adds=_FIXED,
        size=_IN_ALL,
    ),
)
