"""Inputs of strategies: model, stream, settings, and the plugins that all loops share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
from avalanche.core import SupervisedPlugin
from avalanche.logging import BaseLogger
from avalanche.training.plugins import EvaluationPlugin
from avalanche.training.supervised import Naive
from avalanche.training.templates import SupervisedTemplate

from cl_graft.grafts.bank import BaseIdentity, GraftBank
from cl_graft.localization.grafting_settings import GraftingSettings
from cl_graft.runtime.batching import EVAL_BATCH
from cl_graft.runtime.checkpoints import Checkpoints
from cl_graft.runtime.devices import pick_device
from cl_graft.runtime.run_context import Cache, PhaseProgress
from cl_graft.strategies.bank_on_model import identify_model
from cl_graft.strategies.benchmark import MultiTaskText, TextStream
from cl_graft.strategies.loop.best_step import KeepBest
from cl_graft.strategies.loop.micro_batches import MicroBatches, ScaleLoss
from cl_graft.strategies.loop.resuming import Resuming
from cl_graft.strategies.loop.steps_and_rates import ClipGradient, SeededLoop, StopDiverged
from cl_graft.strategies.loop.text_batches import TextBatches
from cl_graft.strategies.stream_scores import StreamScores
from cl_graft.strategies.task_training import TaskMetadata
from cl_graft.training.dense_run import DenseRun
from cl_graft.training.fine_tuning_settings import FineTuning, Optimizer
from cl_graft.training.precision import loss_scale
from cl_graft.training.rate_schedule import Decay

_Strategy = TypeVar("_Strategy", bound=SupervisedTemplate)


LOOP = (
    *("batches", "micro-batches"),
    "choice on dev",
    *("seeds", "divergence", "clipping"),
    *("method", "schedules"),
    "loss scale",
    "resuming",
)
"""The plugins of a loop, in the order in which they act.

The choice on dev comes before all that use the values that are kept, the loss scale after what adds
to the loss, and resuming last, so that it restores what the others have set up.
"""


@dataclass(frozen=True, eq=False, kw_only=True)
class StrategyInputs:
    """Model, stream and settings from which a strategy is built; each takes what it needs.

    Settings that a task may have of its own are given by task label, or once for all tasks.

    Attributes:
        model: The model at its base.
        stream: The tasks.
        fine_tuning: Settings of dense training.
        grafting: Settings of grafting; None means the defaults, with dense runs of a
            part of the steps of `fine_tuning`.
        region_optimizer: Optimiser of a region and the head beside it.
        region_lr: Learning rate of a region, > 0; None means that of `region_rate`.
        head_lr: Learning rate of a head beside a region, > 0; None means that of the region.
        region_decay: How the region's learning rate falls; None means as `fine_tuning` says, or
            linearly.
        clip: Largest norm of a gradient, > 0.
        seed: Seed of every random choice.
        eval_batch: Rows a batch in evaluation, at least 1.
        device: Device of the training; None means that of the model.
        evaluator: Metrics and their loggers; None means `StreamScores` without a log.
        plugins: More plugins of every strategy's loop.
        metadata: Metadata of each task for the bank, by task label; None means name and metric.
        identity: The base's description for a bank; None means a fingerprint of the model.
        bank: The bank that grafting extends; None starts an empty one.
        cache: Cache of dense runs and rankings; None computes all of them.
        checkpoints: Checkpoints of phases that are interrupted; None keeps nothing.
        dense: Dense runs that were made elsewhere, from the base, by task label; methods that train
            regions make the others themselves.
        extra_state: Function that returns more to keep with every state of the loop; see
            `Resuming`.
        on_entry: Function called with the bank after every new entry.
        progress: Function called as (phase, step, steps) in phases before the strategy's loop.
        settings: The strategy's own settings, all of them; `build_strategy` sets them.
    """

    model: MultiTaskText
    stream: TextStream
    fine_tuning: FineTuning | Mapping[int, FineTuning] = field(default_factory=FineTuning)
    grafting: GraftingSettings | Mapping[int, GraftingSettings] | None = None
    region_optimizer: Optimizer = "adamw"
    region_lr: float | None = None
    head_lr: float | None = None
    region_decay: Decay | None = None
    clip: float = FineTuning.clip
    seed: int = 0
    eval_batch: int = EVAL_BATCH
    device: torch.device | None = None
    evaluator: EvaluationPlugin | None = None
    plugins: Sequence[SupervisedPlugin] = ()
    metadata: Mapping[int, TaskMetadata] | None = None
    identity: BaseIdentity | None = None
    bank: GraftBank | None = None
    cache: Cache | None = None
    checkpoints: Checkpoints | None = None
    dense: Mapping[int, DenseRun] | None = None
    extra_state: Callable[[], Mapping[str, Any]] = dict
    on_entry: Callable[[GraftBank], None] | None = None
    progress: PhaseProgress | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def labels(self) -> range:
        """The task labels of the stream."""
        first = self.stream.first_label
        return range(first, first + len(self.stream.tasks))

    @property
    def dense_runs(self) -> dict[int, FineTuning]:
        """The settings of dense training, by task label."""
        if isinstance(self.fine_tuning, FineTuning):
            return dict.fromkeys(self.labels, self.fine_tuning)
        return dict(self.fine_tuning)

    @property
    def grafting_settings(self) -> dict[int, GraftingSettings]:
        """The settings of grafting, by task label."""
        return self.change_grafting()

    def change_grafting(self, **changes: Any) -> dict[int, GraftingSettings]:
        """Return the settings of grafting, by task label, with other values of some fields."""
        if self.grafting is None:
            settings = replace(GraftingSettings(seed=self.seed), **changes)
            return {n: settings.with_dense_run(dense) for n, dense in self.dense_runs.items()}
        if isinstance(self.grafting, GraftingSettings):
            return dict.fromkeys(self.labels, replace(self.grafting, **changes))
        return {label: replace(settings, **changes) for label, settings in self.grafting.items()}

    @property
    def task_metadata(self) -> dict[int, TaskMetadata]:
        """Metadata of each task, by task label."""
        if self.metadata is not None:
            return dict(self.metadata)
        tasks = (encoded.task for encoded in self.stream.tasks)
        return {
            label: TaskMetadata(task.name, task.scored_by)
            for label, task in zip(self.labels, tasks, strict=True)
        }

    @property
    def metrics(self) -> dict[int, str]:
        """The metric of each task, by task label."""
        return {label: metadata.metric for label, metadata in self.task_metadata.items()}

    @property
    def dev(self) -> Any:
        """The experiences with the dev rows."""
        return self.stream.benchmark.valid_stream

    @property
    def first_schedule(self) -> FineTuning:
        """The dense schedule of the first task; others differ only in what is chosen on dev."""
        return next(iter(self.dense_runs.values()))

    def identify_base(self) -> BaseIdentity:
        """Return the base's description; the model must be at its base."""
        return self.identity or identify_model(self.model.task_model)

    def template_arguments(
        self, *, weight_decay: float = 0.0, optimizer: str = "sgd", head_group: bool = False
    ) -> dict[str, Any]:
        """Return arguments of every Avalanche strategy; `TaskSchedules` sets the rates later."""
        kind = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[optimizer]
        groups = [{"params": list(self.model.parameters())}, *([{"params": []}] * head_group)]
        scores = StreamScores(self.metrics)
        return {
            "model": self.model,
            "optimizer": kind(groups, lr=1.0, weight_decay=weight_decay),
            "criterion": self.stream.criterion,
            "eval_mb_size": self.eval_batch,
            "device": pick_device(self.device or self.model.task_model.device),
            "evaluator": self.evaluator or EvaluationPlugin(scores, loggers=[BaseLogger()]),
        }

    def loop_plugins(
        self, *method_plugins: SupervisedPlugin, trains: bool = False, whole_batches: bool = False
    ) -> list[SupervisedPlugin]:
        """Return the plugins of a loop with a strategy's own among them, in the order `LOOP`."""
        schedule, seed = self.first_schedule, self.seed
        scale = loss_scale(self.model.task_model.precision)
        rows = None if whole_batches else schedule.micro_batch
        plugins: dict[str, Sequence[SupervisedPlugin]] = {
            "batches": [TextBatches(seed, group_by_length=schedule.group_by_length)],
            "micro-batches": [MicroBatches(rows, scale=scale)] if rows else [],
            "method": method_plugins,
            "schedules": self.plugins,
            "loss scale": [ScaleLoss(scale)] if scale else [],
            "resuming": [Resuming(self.checkpoints, self.extra_state)] if self.checkpoints else [],
        }
        if trains:
            steps, evaluations = schedule.steps, schedule.evaluations
            plugins |= {
                "choice on dev": [
                    KeepBest(steps, evaluations, dev=self.dev, metrics=self.metrics, seed=seed)
                ],
                "seeds": [SeededLoop(seed)],
                "divergence": [StopDiverged()],
                "clipping": [ClipGradient(self.clip)],
            }
        return [plugin for name in LOOP for plugin in plugins.get(name, ())]

    def sgd_strategy(
        self,
        kind: type[_Strategy],
        *method_plugins: SupervisedPlugin,
        whole_batches: bool = False,
        **arguments: Any,
    ) -> _Strategy:
        """Return an Avalanche strategy that trains every weight with SGD."""
        template = self.template_arguments(weight_decay=self.first_schedule.weight_decay)
        plugins = self.loop_plugins(*method_plugins, trains=True, whole_batches=whole_batches)
        return kind(**template, **arguments, plugins=plugins)

    def naive(self, *method_plugins: SupervisedPlugin, whole_batches: bool = False) -> Naive:
        """Return Avalanche's Naive with a strategy's own plugins."""
        return self.sgd_strategy(Naive, *method_plugins, whole_batches=whole_batches)
