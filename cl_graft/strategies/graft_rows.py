"""The rows of grafting in the table of strategies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from avalanche.core import SupervisedPlugin
from avalanche.training.templates import SupervisedTemplate
from torch import Tensor

from cl_graft.localization import LOCALIZERS
from cl_graft.strategies.grafting import GraftingContinual
from cl_graft.strategies.loop.budgets import ClipGradient, LinearDecay
from cl_graft.strategies.plugin import GraftingPlugin
from cl_graft.strategies.registered import BY_LABEL, Family, Memory, StrategyRow
from cl_graft.strategies.strategy_inputs import StrategyInputs

__all__ = ["ADDS_ENTRY", "REGION_RATES", "ROWS", "grafting_plugin", "plugins_of_regions"]

ADDS_ENTRY = "an entry of the bank: its head and its graft"
REGION_RATES = {"region_lr": (0.03, 0.1, 0.3, 1.0)}


def grafting_plugin(inputs: StrategyInputs) -> GraftingPlugin:
    """Return the plugin that learns tasks as the config says."""
    return GraftingPlugin(
        next(iter(inputs.grafting_settings.values())),
        by_label=inputs.grafting_settings,
        bank=inputs.bank,
        dev=inputs.dev,
        metadata=inputs.task_metadata,
        identity=inputs.identity,
        cache=inputs.cache,
        checkpoints=inputs.checkpoints,
        on_entry=inputs.on_entry,
        progress=inputs.progress,
    )


def plugins_of_regions(inputs: StrategyInputs) -> list[SupervisedPlugin]:
    """Return the plugins of a loop that trains regions, but for `GraftingPlugin`."""
    decay = [LinearDecay(lr=1.0, steps=1)] if inputs.region_decay else []
    return inputs.loop_plugins(ClipGradient(inputs.clip), *decay)


def _grafting(inputs: StrategyInputs) -> SupervisedTemplate:
    plugin, plugins = grafting_plugin(inputs), plugins_of_regions(inputs)
    return GraftingContinual(**inputs.template_arguments(), grafting=plugin, plugins=plugins)


def _know_by_bank(
    strategy: SupervisedTemplate, learned: Sequence[Any], tensors: Mapping[str, Tensor]
) -> None:
    """Do nothing: the plugin was made with the bank."""


def _row(
    name: str, family: Family, source: str, grid: Mapping[str, Any], **imposes: Any
) -> StrategyRow:
    """Make the row of grafting with some settings of its own."""
    return StrategyRow(
        name,
        family,
        source,
        "region",
        "entry",
        _grafting,
        Memory(_know_by_bank),
        grid=grid,
        refuses=BY_LABEL,
        adds=ADDS_ENTRY,
        imposes=imposes,
    )


_SOURCE = "Panigrahi et al., 2023, https://arxiv.org/abs/2302.06600"

ROWS = (
    _row("grafting", "grafting", _SOURCE, REGION_RATES),
    _row(
        "lt_sft",
        "isolation",
        "Ansell et al., 2022, https://arxiv.org/abs/2110.07560; grafting in isolated mode with "
        "the localizer `movement`",
        REGION_RATES,
        localizer="movement",
        mode="isolated",
        refill=False,
        region_start="base",
    ),
    *(
        _row(f"grafting_{row.name}", "ablation", row.source, REGION_RATES, localizer=row.name)
        for row in LOCALIZERS.values()
    ),
    _row(
        "grafting_without_retraining",
        "ablation",
        f"{_SOURCE}; the values of the independent run stay",
        {},
        retrain=False,
    ),
)
