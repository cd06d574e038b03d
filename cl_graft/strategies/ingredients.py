"""What a run gives its strategy to be built from, and the loop that most strategies share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from avalanche.core import SupervisedPlugin
from avalanche.training.plugins import EvaluationPlugin
from avalanche.training.supervised import Naive
from avalanche.training.templates import SupervisedTemplate
from torch import nn

from cl_graft.grafts.bank import BaseIdentity, GraftBank
from cl_graft.localization.settings import GraftingSettings
from cl_graft.runtime.cache import Cache
from cl_graft.runtime.checkpoints import Checkpoints
from cl_graft.strategies.benchmark import TextStream
from cl_graft.strategies.loop.best_step import KeepBest
from cl_graft.strategies.loop.budgets import ClipGradient, SeededLoop
from cl_graft.strategies.loop.divergence import StopDiverged
from cl_graft.strategies.loop.precision import MicroBatches, ScaleLoss
from cl_graft.strategies.loop.resuming import Resuming
from cl_graft.strategies.loop.text_batches import TextBatches
from cl_graft.strategies.multi_head import MultiTaskText
from cl_graft.strategies.region_training import TaskFacts
from cl_graft.training.fine_tuning import FineTuning
from cl_graft.training.precision import loss_scale

__all__ = ["Ingredients"]

_Host = TypeVar("_Host", bound=SupervisedTemplate)


@dataclass(frozen=True, eq=False)
class Ingredients:
    """What strategies are built from; each takes what it needs.

    Attributes:
        model: The model at its base.
        stream: The tasks.
        facts: What to record of each task, by task label.
        identity: The base.
        grafting: Settings of grafting, by task label.
        dense: Settings of dense training, by task label.
        seed: Every random choice is a function of it.
        clip: Largest norm of a gradient.
        region_decay: Whether the region's learning rate falls to 0.
        eval_batch: Rows a batch in evaluation.
        device: Where to run.
        evaluator: Measures, and where they are logged.
        plugins: Plugins of the host (budgets, progress), for every strategy.
        cache: Answers what was computed before.
        bank: What grafting learned before, in a run that goes on.
        checkpoints: Where phases that were interrupted are taken up, and kept on the way.
        aside: Returns what else to keep with every state of the strategy's loop; see `Resuming`.
        on_entry: Called with the bank after every new entry.
        progress: Called as (phase, step, steps) in phases of a strategy's own.
        settings: The strategy's own, all of them; see `StrategyRow.settings`.
    """

    model: MultiTaskText
    stream: TextStream
    facts: Mapping[int, TaskFacts]
    identity: BaseIdentity
    grafting: Mapping[int, GraftingSettings]
    dense: Mapping[int, FineTuning]
    seed: int
    clip: float
    region_decay: bool
    eval_batch: int
    device: torch.device
    evaluator: EvaluationPlugin
    plugins: Sequence[SupervisedPlugin] = ()
    cache: Cache | None = None
    bank: GraftBank | None = None
    checkpoints: Checkpoints | None = None
    aside: Callable[[], Mapping[str, Any]] = dict
    on_entry: Callable[[GraftBank], None] | None = None
    progress: Callable[[str, int, int], None] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def metrics(self) -> dict[int, str]:
        """The score of each task, by task label."""
        return {label: facts.metric for label, facts in self.facts.items()}

    @property
    def dev(self) -> Any:
        """The experiences with rows for choosing."""
        return self.stream.benchmark.valid_stream

    @property
    def first_schedule(self) -> FineTuning:
        """The dense schedule of the first task; all share what is not chosen on dev."""
        return next(iter(self.dense.values()))

    def plugins_around(
        self, *own: SupervisedPlugin, whole_batches: bool = False
    ) -> list[SupervisedPlugin]:
        """Return the plugins of a host's loop around a strategy's `own`, in their order.

        Args:
            *own: The strategy's.
            whole_batches: Compute batches at once, whatever the settings say of micro-batches.
        """
        settings = self.first_schedule
        scale = loss_scale(self.model.task_model.precision)
        parts = None if whole_batches else settings.micro_batch
        return [
            TextBatches(self.seed, group_by_length=settings.group_by_length),
            *([MicroBatches(parts, scale=scale)] if parts else []),
            *own,
            *self.plugins,
            *([ScaleLoss(scale)] if scale else []),
            # Last, so that it restores what the others have set up.
            *([Resuming(self.checkpoints, self.aside)] if self.checkpoints else []),
        ]

    def host(self, *, weight_decay: float = 0.0, optimizer: str = "sgd") -> dict[str, Any]:
        """Return what every Avalanche strategy is constructed with: optimiser, evaluation, device.

        The learning rate, batch size and epochs are placeholders: each experience has its own.

        Args:
            weight_decay: Of the optimiser.
            optimizer: ``"sgd"`` or ``"adamw"``.
        """
        kind = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[optimizer]
        return {
            "model": self.model,
            "optimizer": kind(self.model.parameters(), lr=1.0, weight_decay=weight_decay),
            "criterion": nn.CrossEntropyLoss(),
            "eval_mb_size": self.eval_batch,
            "device": self.device,
            "evaluator": self.evaluator,
        }

    def looped(
        self, *own: SupervisedPlugin, whole_batches: bool = False, chooses: bool = True
    ) -> list[SupervisedPlugin]:
        """Return the plugins of a loop that trains weights, around a strategy's own.

        Args:
            *own: The strategy's.
            whole_batches: As in `plugins_around`.
            chooses: Whether the best of some evaluations on dev is kept, as in a dense run; off
                for strategies that hold more of a step than what the optimiser trains.
        """
        schedule = self.first_schedule
        choice = KeepBest(
            schedule.steps, schedule.evaluations, dev=self.dev, metrics=self.metrics, seed=self.seed
        )
        # First, so that all others see the values that are kept.
        before = (
            *([choice] if chooses else []),
            SeededLoop(self.seed),
            StopDiverged(),
            ClipGradient(self.clip),
        )
        return self.plugins_around(*before, *own, whole_batches=whole_batches)

    def hosted(
        self,
        kind: type[_Host],
        *own: SupervisedPlugin,
        whole_batches: bool = False,
        chooses: bool = True,
        **more: Any,
    ) -> _Host:
        """Make a strategy of Avalanche that trains every weight with SGD.

        Args:
            kind: Its class.
            *own: Plugins of the strategy's.
            whole_batches: As in `plugins_around`.
            chooses: As in `looped`.
            **more: What else the class is constructed with.
        """
        host = self.host(weight_decay=self.first_schedule.weight_decay)
        plugins = self.looped(*own, whole_batches=whole_batches, chooses=chooses)
        return kind(**host, **more, plugins=plugins)

    def naive(self, *own: SupervisedPlugin, whole_batches: bool = False) -> Naive:
        """Make Avalanche's Naive with a strategy's own plugins.

        Args:
            *own: The strategy's.
            whole_batches: As in `plugins_around`.
        """
        return self.hosted(Naive, *own, whole_batches=whole_batches)
