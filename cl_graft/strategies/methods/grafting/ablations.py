"""Ablations of grafting: with every localizer, and with regions that are not trained again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cl_graft.localization import LOCALIZERS
from cl_graft.strategies.method import PICKED_BY_LABEL, Value
from cl_graft.strategies.methods.grafting.grafting import Grafting
from cl_graft.strategies.methods.grafting.region_loop import ENTRY, GRAFTING_PAPER, REGION_RATES
from cl_graft.strategies.registry import register_strategy

__all__: list[str] = []


def _register(
    method: str, source: str, grid: Mapping[str, tuple[Value, ...]], **settings: Any
) -> None:
    register_strategy(
        f"grafting_{method}",
        family="ablation",
        source=source,
        trains="region",
        stored_as="entry",
        adds=ENTRY,
        fixed_config={f"grafting.{name}": value for name, value in settings.items()},
        config_grid=grid,
        unsupported=PICKED_BY_LABEL,
    )(Grafting)


for _name, _localizer in LOCALIZERS.items():
    _register(_name, _localizer.source, REGION_RATES, localizer=_name)

_register(
    "without_retraining",
    f"{GRAFTING_PAPER}; the values of the independent run stay",
    {},
    retrain=False,
)
