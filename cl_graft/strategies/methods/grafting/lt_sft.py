"""LT-SFT: sparse fine-tuning of the weights that moved most, one region a task on the base."""

from __future__ import annotations

from cl_graft.strategies.method import PICKED_BY_LABEL
from cl_graft.strategies.methods.grafting.grafting import Grafting
from cl_graft.strategies.methods.grafting.region_loop import ENTRY, REGION_RATES
from cl_graft.strategies.registry import register_strategy

__all__: list[str] = []

register_strategy(
    "lt_sft",
    family="isolation",
    source="Ansell et al., 2022, https://arxiv.org/abs/2110.07560; grafting in isolated mode with "
    "the localizer `movement`",
    trains="region",
    stored_as="entry",
    adds=ENTRY,
    fixed_config={
        "grafting.localizer": "movement",
        "grafting.mode": "isolated",
        "grafting.avoid_owned": False,
        "grafting.start": "base",
    },
    config_grid=REGION_RATES,
    unsupported=PICKED_BY_LABEL,
)(Grafting)
