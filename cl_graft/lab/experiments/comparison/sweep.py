"""The comparisons of a config: one for each order of the tasks and value of its sweep.

Each is a config with one order and no sweep, in a folder of its own. A strategy is in the
comparisons that differ for it: when the density is swept, naive fine-tuning runs once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cl_graft.errors import InputError, nearest
from cl_graft.lab.results.stored_runs import swept_values
from cl_graft.runtime.seeding import permutation
from cl_graft.settings import ExperimentConfig, config_from, put_
from cl_graft.settings.parts import sweepable
from cl_graft.strategies.method import Method, Value
from cl_graft.strategies.registry import find_strategy

_MOST = 120
"""Orders that "all" may mean: those of five tasks."""

_UNSWEPT = "unswept"


@dataclass(frozen=True)
class SingleComparison:
    """One of the comparisons that a config makes, with one order and no sweep.

    Swept values are by the name of a setting as tables show it. Where there is one order, there is
    no number of it; where there is one comparison, its folder has no name.
    """

    config: ExperimentConfig
    values: Mapping[str, Value | None]
    order: int | None
    name: str

    @property
    def label(self) -> str:
        """Values and order of the comparison, as ``"density=0.001 order1"``."""
        return self.name.replace(",", " ") if self.name != _UNSWEPT else ""

    def name_strategy(self, strategy: str) -> str:
        """Return a strategy's name in messages while it runs."""
        return f"{strategy} {self.label}".strip()

    def name_order(self, text: str) -> str:
        """Put the order before a text, where there are several."""
        return text if self.order is None else f"order {self.order}: {text}"

    def name_row(self, strategy: str) -> str:
        """Return a strategy's name in the table of the sweep: orders share a row."""
        return f"{strategy} {swept_values(self.name)}".strip()


def draw_orders(config: ExperimentConfig) -> list[list[str]]:
    """Return the orders of a config's tasks, the given one first; others are drawn, all different.

    Raises:
        InputError: If there are not as many, or too many for all of them.
    """
    tasks = config.stream.tasks
    there_are = math.factorial(len(tasks))
    wanted = there_are if config.comparison.orders == "all" else config.comparison.orders
    if config.comparison.orders == "all" and there_are > _MOST:
        raise InputError(
            f"{len(tasks)} tasks have {there_are:,} orders: say how many of them, such as orders: 6"
        )
    if wanted > there_are:
        raise InputError(f"{len(tasks)} tasks have {there_are:,} orders, got orders: {wanted}")
    if wanted == there_are:
        return [list(order) for order in itertools.permutations(tasks)]
    chosen = [list(tasks)]
    for draw in itertools.count():
        if len(chosen) == wanted:
            break
        order = [tasks[number] for number in permutation(len(tasks), 0, "order", draw).tolist()]
        chosen += [order] if order not in chosen else []
    return chosen


def expand_sweep(config: ExperimentConfig) -> list[SingleComparison]:
    """Return the comparisons that a config makes, at least one.

    Raises:
        InputError: If there are not as many orders, or a value of the sweep cannot be used.
    """
    orders: list[tuple[int | None, list[str]]] = [(None, config.stream.tasks)]
    if config.comparison.orders != 1:
        orders = list(enumerate(draw_orders(config)))
    parts: list[SingleComparison] = []
    for values, strategies in _swept(config):
        for order, tasks in orders:
            single = _config_at(config, values).with_values(
                {
                    **{f"stream.{name}": v for name, v in config.stream.in_order(tasks).items()},
                    "comparison.strategies": strategies,
                }
            )
            # As the config reads them: 1e-3 may have come as text.
            known = {_shorten_name(name): _value_in(single, name) for name in values}
            said = [f"{name}={'null' if v is None else v}" for name, v in known.items()]
            said += [] if order is None else [f"order{order}"]
            name = ",".join(said) or (_UNSWEPT if config.comparison.sweep else "")
            parts.append(SingleComparison(single, known, order, name))
    names = [part.name for part in parts]
    if doubled := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"the sweep holds {', '.join(doubled)} twice")
    return parts


def _swept(config: ExperimentConfig) -> Iterator[tuple[dict[str, Value | None], list[str]]]:
    """Yield the values to set, with the strategies that they concern."""
    _check_names(config)
    by_values: dict[tuple[tuple[str, Value | None], ...], list[str]] = {}
    for strategy in config.comparison.strategies:
        row = find_strategy(strategy)
        names = [name for name in config.comparison.sweep if _concerns(name, row)]
        for values in itertools.product(*(config.comparison.sweep[name] for name in names)):
            by_values.setdefault(tuple(zip(names, values, strict=True)), []).append(strategy)
    for values, strategies in by_values.items():
        yield dict(values), strategies


def _check_names(config: ExperimentConfig) -> None:
    rows = [find_strategy(name) for name in config.comparison.strategies]
    for name in config.comparison.sweep:
        concerned = [row for row in rows if _concerns(name, row)]
        if not concerned:
            names = ", ".join(config.comparison.strategies)
            raise InputError(f"sweep: {name} changes nothing about {names}")
        setting = name if name in sweepable() else name.rpartition(".")[-1]
        tuned = [row.name for row in concerned if setting in row.grid]
        if config.comparison.tune and tuned:
            raise InputError(
                f"sweep and tune would both choose {name} of {', '.join(tuned)}: leave one out"
            )


def _concerns(name: str, row: Method) -> bool:
    """Return whether a swept value changes anything about a strategy."""
    owner, _, setting = name.rpartition(".")
    if name not in sweepable():
        known = [each.name for each in find_strategy(owner).settings]
        if setting not in known:
            raise InputError(
                f"sweep: {owner} has no setting {setting!r}: {nearest(setting, known)}"
            )
        return row.name == owner
    if name == "fine_tuning.lr" and "lr" in [each.name for each in row.settings]:
        return False
    return name not in row.fixed_config and (owner != "grafting" or row.has_regions)


def _config_at(config: ExperimentConfig, values: Mapping[str, Value | None]) -> ExperimentConfig:
    settings = config.with_values({"comparison.sweep": {}, "comparison.orders": 1}).values()
    for name, value in values.items():
        dotted = name if name in sweepable() else f"comparison.strategy_settings.{name}"
        put_(settings, dotted, value)
    source = "sweep of " + ", ".join(f"{name}={value}" for name, value in values.items())
    return config_from(settings, source=source)


def _value_in(config: ExperimentConfig, name: str) -> Value | None:
    owner, _, setting = name.rpartition(".")
    if name in sweepable():
        return getattr(getattr(config, owner), setting)
    return config.comparison.strategy_settings[owner][setting]


def _shorten_name(name: str) -> str:
    """Return a setting's name without its part, where no other part has one of that name."""
    short = name.rpartition(".")[-1]
    alike = [known for known in sweepable() if known.rpartition(".")[-1] == short]
    return short if alike == [name] else name
