"""Merging: one encoder for all tasks, made of the grafts of their independent runs.

The methods stand in one file, as they differ in the rule alone. Nothing trains in the strategy's
loop. A task is fine-tuned densely from the base and localized, as grafting does; its *standalone*
graft is the whole region with the values of that run. All grafts so far are merged into one, which
every text of every task is answered with.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any

import torch
from avalanche.core import SupervisedPlugin
from avalanche.training.supervised import Naive
from avalanche.training.templates import SupervisedTemplate
from torch import Tensor, nn

from cl_graft.errors import InputError
from cl_graft.grafts.bank import BaseIdentity, Entry, GraftBank
from cl_graft.grafts.graft import Graft, copy_, extract, find_parameters, gather, write_
from cl_graft.grafts.merging import MERGES, merge_grafts
from cl_graft.grafts.region import Layout, Region
from cl_graft.localization import find_localizer
from cl_graft.localization.grafting_settings import GraftingSettings
from cl_graft.localization.region_search import find_region
from cl_graft.runtime.cache import Cache
from cl_graft.runtime.checkpoints import Checkpoints
from cl_graft.storage.elias_fano import packed_size
from cl_graft.strategies.experience_tasks import ExperienceTasks
from cl_graft.strategies.heads import head_state, unwrap_model
from cl_graft.strategies.method import HEAD_PER_TASK, setting
from cl_graft.strategies.methods.grafting.routed_loop import (
    depth_setting,
    load_router_state_,
    make_discriminant_router,
    make_prototype_router,
    router_state,
    shrinkage_setting,
)
from cl_graft.strategies.registry import register_strategy
from cl_graft.strategies.routing import RoutedText
from cl_graft.strategies.stored_bytes import count_bytes, find_plugin
from cl_graft.strategies.strategy_inputs import StrategyInputs
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
        self._tasks = ExperienceTasks(dev, metrics)
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
        unwrapped = unwrap_model(model)
        if self._base is not None:
            write_(unwrapped, self._base)
            self._base = None
        if position is not None and self.merged is not None:
            self._base = extract(unwrapped, self.merged.region)
            write_(unwrapped, self.merged)

    def learn_again(self, strategy: Any, experiences: Sequence[Any]) -> None:
        """Learn tasks that another process learned; the cache keeps their dense runs."""
        for experience in experiences:
            self._learn(strategy, experience)

    def _learn(self, strategy: Any, experience: Any) -> None:
        self.carry(strategy.model, None)
        label = int(experience.task_label)
        base, seed = self._identity.fingerprint, self._settings[label].seed
        task = self._tasks.make(strategy, experience, label=label, base=base, seed=seed)
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
        model = unwrap_model(strategy.model)
        bank = self.bank or GraftBank(layout, self._identity, "isolated")
        self.bank = bank.append(
            Entry(
                task=str(label),
                label=label,
                owned=graft,
                owned_before=Region.empty(layout),
                head=head_state(model, label),
                standalone=graft,
            )
        )
        with torch.no_grad():
            grafts = [entry.owned for entry in self.bank.entries]
            self.merged = self._rule(grafts, find_parameters(model, layout))
        self.seconds[label] = dict(found.seconds)
        self.passes[label] = dict(found.passes)


def build_merged(method: Any, inputs: StrategyInputs) -> SupervisedTemplate:
    """Return the strategy that merges grafts by the rule of a method.

    Raises:
        InputError: If the localizer makes no dense run, or a router is asked for on a model that is
            no encoder.
    """
    localizer = find_localizer(next(iter(inputs.grafting_settings.values())).localizer)
    if not localizer.needs_dense_run:
        raise InputError(
            f"merging needs the values of a dense run, and the localizer {localizer.name!r} makes "
            "none; choose another localizer"
        )
    of_heads = _settings_of_heads()
    of_rule = {
        field.name: getattr(method, field.name)
        for field in fields(method)
        if field.name not in of_heads
    }
    plugin = MergingPlugin(
        partial(merge_grafts, rule=method.rule, seed=inputs.seed, **of_rule),
        inputs.grafting_settings,
        identity=inputs.identify_base(),
        dev=inputs.dev,
        metrics=inputs.metrics,
        cache=inputs.cache,
        checkpoints=inputs.checkpoints,
        progress=inputs.progress,
    )
    template = inputs.template_arguments()
    if method.task == "given":
        return Naive(**template, plugins=inputs.loop_plugins(plugin))
    if inputs.model.task_model.family != "encoder":
        raise InputError("routers need an encoder's features; merge with task: given")
    if method.task == "prototypes":
        router = make_prototype_router(inputs, depth=method.depth)
    else:
        router = make_discriminant_router(inputs, depth=method.depth, shrinkage=method.shrinkage)
    return RoutedText(**template, learner=plugin, router=router, plugins=inputs.loop_plugins())


def merged_bytes(strategy: SupervisedTemplate) -> int:
    """Return the bytes of all standalone grafts, numbers packed as in files, and of the router."""
    bank = find_plugin(strategy, MergingPlugin).bank
    grafts = [entry.owned for entry in bank.entries] if bank else []
    packed = sum(packed_size(len(graft), graft.region.layout.total) for graft in grafts)
    return packed + count_bytes([[graft.values for graft in grafts], router_state(strategy)])


def load_merged_state_(
    strategy: SupervisedTemplate, experiences: Sequence[Any], tensors: Mapping[str, Tensor]
) -> None:
    """Merge the grafts of earlier tasks again, which the cache keeps."""
    find_plugin(strategy, MergingPlugin).learn_again(strategy, experiences)
    load_router_state_(strategy, experiences, tensors)


def _settings_of_heads() -> dict[str, Any]:
    """Return the settings of every merging method beside those of its rule: fields by name."""
    return {
        "task": setting(
            "given",
            "Whose head answers: that of the task label given, or of the task that a router picks "
            "as grafting_by_prototypes or grafting_by_discriminant does.",
            choices=("given", "prototypes", "discriminant"),
        ),
        "shrinkage": shrinkage_setting(),
        "depth": depth_setting(),
    }


def _coefficient(grid: tuple[float, ...] = (0.4, 0.7, 1.0, 1.4)) -> Any:
    return setting(1.0, "What the merged vector is multiplied by.", least=0, grid=grid)


def register_merging(rule: str) -> Callable[[type], type]:
    """Register the class that follows, whose fields are the settings of a rule of merging.

    It gets the settings of the heads behind them, and all methods: rules differ in nothing else.

    Args:
        rule: A name in `cl_graft.grafts.merging.MERGES`.
    """

    def register(kind: type) -> type:
        methods = {
            "build": build_merged,
            "storage_bytes": staticmethod(merged_bytes),
            "state": staticmethod(router_state),
            "load_state_": staticmethod(load_merged_state_),
        }
        of_heads = _settings_of_heads()
        for name, value in {"rule": rule, **methods, **of_heads}.items():
            setattr(kind, name, value)
        kinds = {name: type(field.default) for name, field in of_heads.items()}
        kind.__annotations__ = {**inspect.get_annotations(kind), **kinds}
        return register_strategy(
            f"merging_by_{rule}",
            family="merging",
            source=f"{MERGES[rule].source}; on standalone grafts",
            trains="nothing",
            adds="its head and its whole graft, with the values of the dense run",
            unsupported=HEAD_PER_TASK,
        )(kind)

    return register


@register_merging("average")
class MergingByAverage:
    """Move the base by the mean of what all grafts move it by."""


@register_merging("task_arithmetic")
class MergingByTaskArithmetic:
    """Move the base by the sum of what all grafts move it by, times a coefficient."""

    coefficient: float = _coefficient()


@register_merging("ties")
class MergingByTies:
    """Move the base by the mean of what has the elected sign, after trimming."""

    coefficient: float = _coefficient()
    keep: float = setting(1.0, "Share of each graft that trimming leaves.", least=1e-6, most=1)


@register_merging("dare")
class MergingByDare:
    """Move the base by the sum of all grafts, with a part of each dropped at random."""

    coefficient: float = _coefficient()
    drop: float = setting(0.5, "Share of each graft that is dropped.", least=0, most=0.999)


@register_merging("magmax")
class MergingByMagMax:
    """Move each coordinate by the largest move of all grafts."""

    coefficient: float = _coefficient()


@register_merging("consensus")
class MergingByConsensus:
    """Move the coordinates that enough tasks find important by the sum of all grafts."""

    coefficient: float = _coefficient(grid=(0.4, 0.7, 1.0))
    threshold: float = setting(0.4, "How large a move must be beside those of others.", least=0)
    agree: int = setting(
        1,
        "How many tasks must find a coordinate important; 2 as in the paper leaves those at the "
        "base that only one graft moves.",
        least=1,
        grid=(1, 2),
    )


@register_merging("localize_and_stitch")
class MergingByLocalizeAndStitch:
    """Move each coordinate by the mean over the grafts that hold it."""
