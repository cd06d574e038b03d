"""Parts of all methods that train regions: the plugin, the plugins of the loop, the grid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from avalanche.core import SupervisedPlugin
from avalanche.training.templates import SupervisedTemplate
from torch import Tensor

from cl_graft.strategies.loop.budgets import ClipGradient
from cl_graft.strategies.plugin import GraftingPlugin
from cl_graft.strategies.strategy_inputs import StrategyInputs

__all__ = [
    "ENTRY",
    "GRAFTING_PAPER",
    "REGION_RATES",
    "keep_bank_",
    "make_grafting_plugin",
    "make_region_plugins",
]

GRAFTING_PAPER = "Panigrahi et al., 2023, https://arxiv.org/abs/2302.06600"
ENTRY = "an entry of the bank: its head and its graft"
REGION_RATES = {"grafting.lr": (0.03, 0.1, 0.3, 1.0)}
"""Learning rates of regions, by SGD, among which tuning chooses."""


def make_grafting_plugin(inputs: StrategyInputs) -> GraftingPlugin:
    """Return the plugin that learns tasks into a bank."""
    settings = inputs.grafting_settings
    return GraftingPlugin(
        next(iter(settings.values())),
        by_label=settings,
        bank=inputs.bank,
        dev=inputs.dev,
        metadata=inputs.task_metadata,
        identity=inputs.identity,
        seeds_from_record=True,
        cache=inputs.cache,
        checkpoints=inputs.checkpoints,
        dense=inputs.dense,
        on_entry=inputs.on_entry,
        progress=inputs.progress,
    )


def make_region_plugins(inputs: StrategyInputs) -> list[SupervisedPlugin]:
    """Return the plugins of a loop that trains regions, but for `GraftingPlugin`."""
    return inputs.loop_plugins(ClipGradient(inputs.clip))


def keep_bank_(
    strategy: SupervisedTemplate, experiences: Sequence[Any], tensors: Mapping[str, Tensor]
) -> None:
    """Do nothing: the plugin was made with the bank."""
