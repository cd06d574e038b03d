"""The rows of merging in the table of strategies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from avalanche.training.supervised import Naive
from avalanche.training.templates import SupervisedTemplate
from torch import Tensor

from cl_graft.errors import InputError
from cl_graft.grafts.merging import MERGES, merge_grafts
from cl_graft.localization import find_localizer
from cl_graft.storage.elias_fano import packed_size
from cl_graft.strategies.baselines.stored_bytes import bytes_of, plugin_of
from cl_graft.strategies.merged import MergingPlugin
from cl_graft.strategies.method_settings import Setting, Value
from cl_graft.strategies.registered import OWN_HEADS, Memory, StrategyRow
from cl_graft.strategies.routed_rows import (
    DEPTH,
    SHRINKAGE,
    by_discriminant,
    by_prototypes,
    recall,
    remember,
)
from cl_graft.strategies.routing import RoutedText
from cl_graft.strategies.strategy_inputs import StrategyInputs

__all__ = ["ROWS"]

_TASK = Setting(
    "task",
    "given",
    "Whose head answers: that of the task label given, or of the task that a router picks as "
    "grafting_by_prototypes or grafting_by_discriminant does.",
    choices=("given", "prototypes", "discriminant"),
)
_ROUTERS = {"prototypes": by_prototypes, "discriminant": by_discriminant}
_OF_HEADS = (_TASK, SHRINKAGE, DEPTH)
_COEFFICIENT = Setting("coefficient", 1.0, "What the merged vector is multiplied by.", least=0)
_COEFFICIENTS: dict[str, tuple[Value, ...]] = {"coefficient": (0.4, 0.7, 1.0, 1.4)}


def _build(rule: str) -> Callable[[StrategyInputs], SupervisedTemplate]:
    def build(inputs: StrategyInputs) -> SupervisedTemplate:
        plugin = _plugin(inputs, rule)
        if inputs.settings[_TASK.name] == "given":
            return Naive(**inputs.template_arguments(), plugins=inputs.loop_plugins(plugin))
        if inputs.model.task_model.family != "encoder":
            raise InputError("routers need an encoder's features; merge with task: given")
        router, plugins = _ROUTERS[inputs.settings[_TASK.name]](inputs), inputs.loop_plugins()
        return RoutedText(
            **inputs.template_arguments(), learner=plugin, router=router, plugins=plugins
        )

    return build


def _plugin(inputs: StrategyInputs, rule: str) -> MergingPlugin:
    localizer = next(iter(inputs.grafting_settings.values())).localizer
    if not find_localizer(localizer).needs_tuned:
        raise InputError(
            f"merging needs the values of a dense run, and the localizer {localizer!r} makes none; "
            "choose another localizer"
        )
    of_heads = {setting.name for setting in _OF_HEADS}
    own = {name: value for name, value in inputs.settings.items() if name not in of_heads}
    return MergingPlugin(
        partial(merge_grafts, rule=rule, seed=inputs.seed, **own),
        inputs.grafting_settings,
        identity=inputs.identify_base(),
        dev=inputs.dev,
        metrics=inputs.metrics,
        cache=inputs.cache,
        checkpoints=inputs.checkpoints,
        progress=inputs.progress,
    )


def _know_by_cache(
    strategy: SupervisedTemplate, learned: Sequence[Any], tensors: Mapping[str, Tensor]
) -> None:
    plugin_of(strategy, MergingPlugin).recall(strategy, learned)
    recall(strategy, learned, tensors)


def _held(strategy: SupervisedTemplate) -> int:
    """Return the bytes of all standalone grafts, numbers packed as in files, and of the router."""
    bank = plugin_of(strategy, MergingPlugin).bank
    grafts = [entry.owned for entry in bank.entries] if bank else []
    packed = sum(packed_size(len(graft), graft.region.layout.total) for graft in grafts)
    return packed + bytes_of([[graft.values for graft in grafts], remember(strategy)])


def _row(
    rule: str,
    *settings: Setting,
    grid: Mapping[str, tuple[Value, ...]] | None = None,
) -> StrategyRow:
    merge = MERGES[rule]
    return StrategyRow(
        f"merging_by_{rule}",
        "merging",
        f"{merge.source}; on standalone grafts",
        "nothing",
        "head",
        _build(rule),
        Memory(_know_by_cache, remember=remember),
        settings=(*([_COEFFICIENT] if merge.scaled else []), *settings, *_OF_HEADS),
        grid={**(_COEFFICIENTS if merge.scaled else {}), **(grid or {})},
        holds=_held,
        refuses=OWN_HEADS,
        adds="its head and its whole graft, with the values of the dense run",
    )


ROWS = (
    _row("average"),
    _row("task_arithmetic"),
    _row(
        "ties",
        Setting("keep", 1.0, "Share of each graft that trimming leaves.", least=1e-6, most=1),
    ),
    _row(
        "dare",
        Setting("drop", 0.5, "Share of each graft that is dropped.", least=0, most=0.999),
    ),
    _row("magmax"),
    _row(
        "consensus",
        Setting("threshold", 0.4, "How large a move must be beside those of others.", least=0),
        Setting(
            "agree",
            1,
            "How many tasks must find a coordinate important; 2 as in the paper leaves those at "
            "the base that only one graft moves.",
            least=1,
        ),
        grid={"coefficient": (0.4, 0.7, 1.0), "agree": (1, 2)},
    ),
    _row("localize_and_stitch"),
)
