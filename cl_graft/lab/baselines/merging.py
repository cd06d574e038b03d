"""Merging: one encoder for all tasks, made of the grafts of their independent runs.

Nothing trains in the strategy's loop: a task is fine-tuned densely and localized, and its graft is
the whole region with the values of that run. The grafts so far are merged into one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from avalanche.training.supervised import Naive
from avalanche.training.templates import SupervisedTemplate
from torch import Tensor, nn

from cl_graft.errors import InputError
from cl_graft.grafts.bank import Entry, GraftBank
from cl_graft.grafts.graft import Graft, copy_, extract, find_parameters, gather, write_
from cl_graft.grafts.merge_rules import MERGES, merge_grafts
from cl_graft.grafts.region import Layout, Region
from cl_graft.lab.baselines.bounds import LearnsAside
from cl_graft.localization import find_localizer
from cl_graft.localization.region_search import find_region
from cl_graft.runtime.run_context import RunContext
from cl_graft.storage.elias_fano import packed_size
from cl_graft.strategies import StrategyInputs, count_bytes, find_plugin, register_strategy, setting
from cl_graft.strategies.method import HEAD_PER_TASK, StreamShape
from cl_graft.strategies.strategy import Strategy
from cl_graft.strategies.task_heads import copy_head_state, unwrap_model


class MergingPlugin(LearnsAside, supports_distributed=False):
    """Answer every task with one merged encoder and the task's own head.

    Runs at: before_training_exp, before_eval_exp, after_eval_exp.
    """

    def __init__(
        self,
        rule: Callable[[Sequence[Graft], Mapping[str, nn.Parameter]], Graft],
        inputs: StrategyInputs,
    ) -> None:
        super().__init__(inputs)
        self.bank: GraftBank | None = None
        self.merged: Graft | None = None
        self._rule = rule
        self._settings = inputs.change_grafting(mode="isolated", keep_standalone=True)
        self._base: Graft | None = None

    def before_eval_exp(self, strategy: Strategy, **kwargs: Any) -> None:
        """Carry the merged encoder, if a task was learned."""
        self.after_eval_exp(strategy)
        if self.merged is not None:
            model = unwrap_model(strategy.model)
            self._base = extract(model, self.merged.region)
            write_(model, self.merged)

    def after_eval_exp(self, strategy: Strategy, **kwargs: Any) -> None:
        """Put the base back."""
        if self._base is not None:
            write_(unwrap_model(strategy.model), self._base)
            self._base = None

    def _learn(self, strategy: Strategy, experience: Any, context: RunContext) -> None:
        self.after_eval_exp(strategy)
        label = int(experience.task_label)
        task = self._make_task(strategy, experience, seed=self._settings[label].seed)
        layout = Layout.of(task.parameters)
        search = find_region(task, self._settings[label], context=context)
        if not search.dense.tuned:
            raise ValueError("merging needs the values of a dense run, and this localizer has none")
        graft = gather(search.dense.tuned, search.region)
        copy_(task.head, search.dense.head)
        model = unwrap_model(strategy.model)
        bank = self.bank or GraftBank(layout, self._identity, "isolated")
        self.bank = bank.append(
            Entry(
                task=str(label),
                label=label,
                owned=graft,
                owned_before=Region.empty(layout),
                head=copy_head_state(model, label),
                standalone=graft,
            )
        )
        with torch.no_grad():
            grafts = [entry.owned for entry in self.bank.entries]
            self.merged = self._rule(grafts, find_parameters(model, layout))
        self.seconds[label] = dict(search.seconds)
        self.passes[label] = dict(search.passes)


@dataclass(frozen=True, kw_only=True)
class MergingMethod:
    """What merging methods share; each adds its rule, a name in `MERGES`, and settings of it."""

    rule: ClassVar[str]

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return Naive with `MergingPlugin`."""
        rule = partial(merge_grafts, rule=self.rule, seed=inputs.seed, **asdict(self))
        plugins = inputs.loop_plugins(MergingPlugin(rule, inputs))
        return Naive(**inputs.template_arguments(), plugins=plugins)

    def check_stream(self, shape: StreamShape) -> None:
        """Refuse a localizer without a dense run."""
        localizer = find_localizer(shape.localizer)
        if not localizer.needs_dense_run:
            raise InputError(
                f"merging needs the values of a dense run, and the localizer {localizer.name!r} "
                "makes none; choose another localizer, such as movement_by_tensor"
            )

    @staticmethod
    def storage_bytes(strategy: SupervisedTemplate) -> int:
        """Return the bytes of the grafts, indices packed as in files."""
        bank = find_plugin(strategy, MergingPlugin).bank
        grafts = [entry.owned for entry in bank.entries] if bank else []
        packed = sum(packed_size(len(graft), graft.region.layout.total) for graft in grafts)
        return packed + count_bytes([graft.values for graft in grafts])

    @staticmethod
    def load_state_(
        strategy: SupervisedTemplate, experiences: Sequence[Any], tensors: Mapping[str, Tensor]
    ) -> None:
        """Merge the grafts of earlier tasks again, which the cache keeps."""
        find_plugin(strategy, MergingPlugin).learn_again(strategy, experiences)


def _register(kind: type[MergingMethod]) -> type[MergingMethod]:
    return register_strategy(
        f"merging_by_{kind.rule}",
        family="merging",
        source=f"{MERGES[kind.rule].source}; on standalone grafts",
        trains="nothing",
        adds="its head and its whole graft, with the values of the dense run",
        fixed_config={"grafting.dense_share": 1.0},
        unsupported=HEAD_PER_TASK,
    )(kind)


def _coefficient() -> Any:
    grid = (0.4, 0.7, 1.0, 1.4)
    return setting(1.0, "Factor of the merged task vector.", min_value=0, grid=grid)


@_register
class MergingByAverage(MergingMethod):
    """Move the base by the mean of what all grafts move it by."""

    rule = "average"


@_register
class MergingByTaskArithmetic(MergingMethod):
    """Move the base by the sum of what all grafts move it by, times a coefficient."""

    rule = "task_arithmetic"
    coefficient: float = _coefficient()


@_register
class MergingByTies(MergingMethod):
    """Move the base by the mean of what has the elected sign, after trimming."""

    rule = "ties"
    coefficient: float = _coefficient()
    keep: float = setting(
        1.0, "Share of each graft that trimming leaves.", min_value=1e-6, max_value=1
    )


@_register
class MergingByDare(MergingMethod):
    """Move the base by the sum of all grafts, with a part of each dropped at random."""

    rule = "dare"
    coefficient: float = _coefficient()
    drop: float = setting(0.5, "Share of each graft that is dropped.", min_value=0, max_value=0.999)


@_register
class MergingByMagMax(MergingMethod):
    """Move each coordinate by the largest move of all grafts."""

    rule = "magmax"
    coefficient: float = _coefficient()


@_register
class MergingByLocalizeAndStitch(MergingMethod):
    """Move each coordinate by the mean over the grafts that hold it."""

    rule = "localize_and_stitch"
