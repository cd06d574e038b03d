"""The command `strategies`: the strategies that can be compared, and those that cannot run here."""

from __future__ import annotations

from dataclasses import asdict

from cl_graft.cli.options import AsJson
from cl_graft.cli.output import Output, make_table


def strategies_command(as_json: AsJson = False) -> None:
    """List the strategies of run and compare, and their own settings.

    [b]Example[/b]: cl-graft strategies
    """
    from cl_graft.strategies.registry import STRATEGIES

    rows = list(STRATEGIES.values())
    content = [
        {
            "name": row.name,
            "family": row.family,
            "source": row.source,
            "trains": row.trains,
            "adds": row.adds,
            "unavailable": row.unavailable or None,
            "settings": [asdict(setting) for setting in row.settings],
            "refuses": dict(row.unsupported),
            "kinds": row.kinds,
            "grid": {name: list(values) for name, values in row.grid.items()},
        }
        for row in rows
    ]
    shown = [
        (
            row.name,
            row.family,
            row.adds,
            ", ".join(f"{setting.name}={setting.default}" for setting in row.settings),
            row.source,
        )
        for row in rows
        if not row.unavailable and row.family != "ablation"
    ]
    by_label = ", ".join(row.name for row in rows if row.unsupported and row.family != "ablation")
    ablations = ", ".join(row.name for row in rows if row.family == "ablation")
    missing = [f"Not available: {row.name}: {row.unavailable}" for row in rows if row.unavailable]
    columns = ("name", "family", "a task adds", "its own settings", "source")
    Output(as_json=as_json).result(
        content,
        make_table("The strategies", columns, shown),
        *missing,
        f"Ablations of grafting: {ablations}",
        f"Not in every scenario (--json says why): {by_label}",
        "Set their own settings as in: --set comparison.strategy_settings.ewc.ewc_lambda=10",
    )
