"""Merging: one encoder for all tasks, made of the grafts of their independent runs.

Nothing trains in the strategy's loop. A task is fine-tuned densely from the base and localized, as
grafting does; its *standalone* graft is the whole region with the values of that run. All grafts so
far are merged into one, which every text of every task is answered with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from avalanche.core import SupervisedPlugin
from torch import nn

from cl_graft.grafts.bank import BaseIdentity, Entry, GraftBank
from cl_graft.grafts.graft import Graft, copy_, extract, gather, named, write_
from cl_graft.grafts.region import Layout, Region
from cl_graft.localization.region_search import find_region
from cl_graft.localization.settings import GraftingSettings
from cl_graft.runtime.cache import Cache
from cl_graft.runtime.checkpoints import Checkpoints
from cl_graft.strategies.experience_tasks import Problems
from cl_graft.strategies.heads import carrier_of, head_state
from cl_graft.training.dense_run import silent
from cl_graft.training.passes import Passes

__all__ = ["MergingPlugin"]


class MergingPlugin(SupervisedPlugin, supports_distributed=False):
    """Answer every task with one merged encoder and the task's own head.

    Runs at: before_training_exp, before_eval_exp, after_eval_exp.

    Args:
        rule: From standalone grafts and the base's parameters to the merged graft.
        settings: The dense run and the localizer of each task, by task label. Regions do not pass
            over coordinates of earlier tasks.
        identity: The base.
        dev: Experiences with the rows for choosing checkpoints, matched by task label.
        metrics: The dev score by task label; ``"accuracy"`` where a task is not named.
        cache: Answers what was computed before.
        checkpoints: Where a phase that was interrupted is taken up.
        progress: Called as (phase, step, steps).

    Attributes:
        bank: The standalone grafts of the tasks so far, as an isolated bank; None before the first.
        merged: What they are merged into; None before the first task.
        seconds: Wall time by task label and phase.
        passes: Rows that went through the model, by task label and phase.
    """

    def __init__(
        self,
        rule: Callable[[Sequence[Graft], Mapping[str, nn.Parameter]], Graft],
        settings: Mapping[int, GraftingSettings],
        *,
        identity: BaseIdentity,
        dev: Any = None,
        metrics: Mapping[int, str] | None = None,
        cache: Cache | None = None,
        checkpoints: Checkpoints | None = None,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> None:
        super().__init__()
        self.bank: GraftBank | None = None
        self.merged: Graft | None = None
        self.seconds: dict[int, dict[str, float]] = {}
        self.passes: dict[int, dict[str, Passes]] = {}
        self._rule = rule
        self._settings = {
            label: replace(own, mode="isolated", keep_standalone=True)
            for label, own in settings.items()
        }
        self._identity = identity
        self._problems = Problems(dev, metrics)
        self._cache = cache
        self._checkpoints = checkpoints
        self._progress = progress or silent
        self._base: Graft | None = None

    @property
    def learning(self) -> bool:
        """Whether an experience is training: never, as the loop has nothing to train."""
        return False

    def before_training_exp(self, strategy: Any, **kwargs: Any) -> None:
        """Learn the task's graft, merge all, and skip the strategy's loop."""
        self._learn(strategy, strategy.experience)
        strategy.stop_training()

    def before_eval_exp(self, strategy: Any, **kwargs: Any) -> None:
        """Carry the merged encoder."""
        self.carry(strategy.model, 0)

    def after_eval_exp(self, strategy: Any, **kwargs: Any) -> None:
        """Put the base back."""
        self.carry(strategy.model, None)

    def carry(self, model: nn.Module, position: int | None) -> None:
        """Make the model carry the merged encoder, whichever entry is asked for; None: the base."""
        carrier = carrier_of(model)
        if self._base is not None:
            write_(carrier, self._base)
            self._base = None
        if position is not None and self.merged is not None:
            self._base = extract(carrier, self.merged.region)
            write_(carrier, self.merged)

    def recall(self, strategy: Any, experiences: Sequence[Any]) -> None:
        """Know tasks again that were learned in another process: the cache answers them."""
        for experience in experiences:
            self._learn(strategy, experience)

    def _learn(self, strategy: Any, experience: Any) -> None:
        self.carry(strategy.model, None)
        label = int(experience.task_label)
        base, seed = self._identity.fingerprint, self._settings[label].seed
        task = self._problems.of(strategy, experience, label=label, base=base, seed=seed)
        layout = Layout.of(task.parameters)
        found = find_region(
            task,
            self._settings[label],
            cache=self._cache,
            checkpoints=self._checkpoints,
            progress=self._progress,
        )
        if not found.dense.tuned:
            raise ValueError("merging needs the values of a dense run, and this localizer has none")
        graft = gather(found.dense.tuned, found.region)
        copy_(task.head, found.dense.head)
        carrier = carrier_of(strategy.model)
        bank = self.bank or GraftBank(layout, self._identity, "isolated")
        self.bank = bank.append(
            Entry(
                task=str(label),
                label=label,
                owned=graft,
                lost=Region.empty(layout),
                head=head_state(carrier, label),
                standalone=graft,
            )
        )
        with torch.no_grad():
            grafts = [entry.owned for entry in self.bank.entries]
            self.merged = self._rule(grafts, named(carrier, layout))
        self.seconds[label] = dict(found.seconds)
        self.passes[label] = dict(found.passes)
