"""Grafting, LT-SFT, and the ablations of grafting: one a localizer, and one without training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from avalanche.training.templates import SupervisedTemplate
from torch import Tensor

from cl_graft.localization import LOCALIZERS
from cl_graft.strategies import StrategyInputs, register_strategy
from cl_graft.strategies.grafting_continual import GraftingContinual
from cl_graft.strategies.grafting_plugin import GraftingPlugin
from cl_graft.strategies.loop.steps_and_rates import ClipGradient
from cl_graft.strategies.method import PICKED_BY_LABEL

GRAFTING_PAPER = "Panigrahi et al., 2023, https://arxiv.org/abs/2302.06600"
ENTRY = "an entry of the bank: its head and its graft"
REGION_RATES = {"grafting.lr": (0.03, 0.1, 0.3, 1.0)}
"""Learning rates of regions, by SGD, among which tuning chooses."""

_TRAITS: dict[str, Any] = {
    **{"trains": "region", "stored_as": "entry", "adds": ENTRY},
    **{"config_grid": REGION_RATES, "unsupported": PICKED_BY_LABEL},
}


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


def keep_bank_(
    strategy: SupervisedTemplate, experiences: Sequence[Any], tensors: Mapping[str, Tensor]
) -> None:
    """Do nothing: the plugin was made with the bank."""


@register_strategy("grafting", family="grafting", source=GRAFTING_PAPER, **_TRAITS)
class Grafting:
    """Learn every task in a small region of the base's weights, and answer it with its own values.

    Its settings are those of the experiment's config.
    """

    load_state_ = staticmethod(keep_bank_)

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return `GraftingContinual`."""
        plugins = inputs.loop_plugins(ClipGradient(inputs.clip))
        template = inputs.template_arguments(optimizer=inputs.region_optimizer, head_group=True)
        return GraftingContinual(**template, grafting=make_grafting_plugin(inputs), plugins=plugins)


register_strategy(
    "lt_sft",
    family="isolation",
    source="Ansell et al., 2022, https://arxiv.org/abs/2110.07560; grafting in isolated mode with "
    "the localizer `movement`",
    fixed_config={
        "grafting.localizer": "movement",
        "grafting.dense_share": 1.0,
        "grafting.mode": "isolated",
        "grafting.avoid_owned": False,
    },
    **_TRAITS,
)(Grafting)

for _name, _localizer in LOCALIZERS.items():
    register_strategy(
        f"grafting_{_name}",
        family="ablation",
        source=_localizer.source,
        fixed_config={"grafting.localizer": _name},
        **_TRAITS,
    )(Grafting)

register_strategy(
    "grafting_without_retraining",
    family="ablation",
    source=f"{GRAFTING_PAPER}; the values of the independent run stay",
    fixed_config={"grafting.retrain": False},
    **{**_TRAITS, "config_grid": {}},
)(Grafting)
