"""Grafting, the method of this package."""

from __future__ import annotations

from avalanche.training.templates import SupervisedTemplate

from cl_graft.strategies import StrategyInputs, register_strategy
from cl_graft.strategies.grafting import GraftingContinual
from cl_graft.strategies.method import PICKED_BY_LABEL
from cl_graft.strategies.methods.grafting.region_loop import (
    ENTRY,
    GRAFTING_PAPER,
    REGION_RATES,
    keep_bank_,
    make_grafting_plugin,
    make_region_plugins,
)

__all__ = ["Grafting"]


@register_strategy(
    "grafting",
    family="grafting",
    source=GRAFTING_PAPER,
    trains="region",
    stored_as="entry",
    adds=ENTRY,
    config_grid=REGION_RATES,
    unsupported=PICKED_BY_LABEL,
)
class Grafting:
    """Learn every task in a small region of the base's weights, and answer it with its own values.

    Its settings are those of the experiment's config.
    """

    load_state_ = staticmethod(keep_bank_)

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return `GraftingContinual`."""
        plugin, plugins = make_grafting_plugin(inputs), make_region_plugins(inputs)
        template = inputs.template_arguments(optimizer=inputs.region_optimizer, head_group=True)
        return GraftingContinual(**template, grafting=plugin, plugins=plugins)
