"""Null hypotheses, and what the package's intervals and tests say under them.

Methods that are equally good, means that are known: whatever a function
finds there is wrong. `error_rates.py` counts how often that happens.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.random import Generator
from papers.measurements import Measurement, summarize
from papers.sam import differences, ranks
from scipy import stats

from cl_graft.lab.results.run_results import RunResult
from cl_graft.lab.results.strategy_statistics import compare_with, seed_means, spread_over_seeds
from cl_graft.metrics.statistics import holm, mean_interval, paired_t_test

_LEVEL = 0.05

Kind = Literal["holds", "dependent"]


@dataclass(frozen=True)
class Check:
    """One function under one null hypothesis."""

    function: str
    null: str
    wrong: Callable[[Generator], bool]
    kind: Kind = "holds"
    exact: bool = False
    stated: float = _LEVEL


@dataclass(frozen=True)
class Rate:
    """Error rate of a function."""

    function: str
    null: str
    kind: Kind
    stated: float
    wrong: int
    trials: int
    low: float
    high: float


def measure(check: Check, *, trials: int, seed: int = 0) -> Rate:
    """Simulate a function so many times, with draws of its own."""
    draw = np.random.default_rng([seed, *check.function.encode(), *check.null.encode()])
    wrong = sum(check.wrong(draw) for _ in range(trials))
    ends = stats.binomtest(wrong, trials).proportion_ci(method="wilson")
    return Rate(
        check.function,
        check.null,
        check.kind,
        check.stated,
        wrong,
        trials,
        float(ends.low),
        float(ends.high),
    )


def _misses(found: tuple[float, tuple[float, float] | None], mean: float) -> bool:
    interval = found[1]
    return interval is not None and not interval[0] <= mean <= interval[1]


def _found(p: float | None) -> bool:
    return p is not None and p < _LEVEL


def _mean(draw: Generator, *, seeds: int) -> bool:
    return _misses(mean_interval(draw.normal(1.0, 0.1, seeds).tolist()), 1.0)


def _pairs(draw: Generator, *, seeds: int) -> bool:
    easy = draw.normal(0.0, 1.0, seeds)  # a seed is easier for both
    both = easy + draw.normal(0.0, 0.3, (2, seeds))
    return _found(paired_t_test(*both.tolist())[1])


def _tests(draw: Generator, *, tests: int) -> bool:
    chances = [_p_of_differences(draw.normal(0.0, 1.0, 3)) for _ in range(tests)]
    return any(map(_found, holm(chances)))


def _p_of_differences(values: np.ndarray) -> float:
    p = paired_t_test(values.tolist(), [0.0] * len(values))[1]
    return 1.0 if p is None else p


def _run(strategy: str, seed: int, tasks: list[str], final: np.ndarray) -> RunResult:
    nothing: dict[str, Any] = {}
    return RunResult(
        strategy=strategy, seed=seed, tasks=tasks, complete=True, R=[final.tolist()], ece=[],
        average_accuracy=float(final.mean()), backward_transfer=None, forward_transfer=None,
        forgetting=None, metrics=nothing, baseline=[], coordinates=nothing, overlap=None,
        bytes=nothing, seconds=nothing, seconds_saved=nothing, logit_hashes=nothing,
        schedules=nothing, data_fingerprints=nothing, model=nothing, versions=nothing,
        machine=nothing,
    )  # fmt: skip


def _mean_over_orders(draw: Generator, *, orders: int) -> bool:
    seed_effects = draw.normal(0.0, 0.02, 3)
    runs = [
        _run("one", seed, [f"task{order}"], np.array([0.7 + effect + draw.normal(0.0, 0.005)]))
        for seed, effect in enumerate(seed_effects)
        for order in range(orders)
    ]
    found = spread_over_seeds(seed_means(runs, lambda run: run.average_accuracy))
    return _misses((found.mean, found.interval), 0.7)


def _any_difference(draw: Generator, *, methods: int, orders: int) -> bool:
    runs = []
    for method, seed in itertools.product(range(methods), range(3)):
        # Seeds are the samples: methods are equal on the one stream there is, up to a seed's luck.
        luck = draw.normal(0.0, 0.01)
        runs += [
            _run(
                f"method{method}",
                seed,
                [f"task{order}"],
                np.array([0.7 + luck + draw.normal(0.0, 0.005)]),
            )
            for order in range(orders)
        ]
    found = compare_with("method0", runs)
    return any(_found(row.p_holm) for row in found)


def _orders_as_samples(draw: Generator, *, orders: int) -> bool:
    luck = draw.normal(0.0, 0.02)
    return _misses(mean_interval((0.7 + luck + draw.normal(0.0, 0.005, orders)).tolist()), 0.7)


def _cells(draw: Generator) -> list[list[Measurement]]:
    """Return three cells of the SAM paper's experiments, with ten equally good methods."""
    methods = ["SAM", *(f"method{number}" for number in range(9))]
    names = [f"task{number}" for number in range(5)]
    values = draw.normal(0.7, 0.02, (3, len(names), len(methods)))
    return [
        [
            Measurement(name, method, "score", float(cell[place, number]))
            for place, name in enumerate(names)
            for number, method in enumerate(methods)
        ]
        for cell in values
    ]


def _any_pair_of_table_5(draw: Generator) -> bool:
    cells = _cells(draw)
    found = differences(cells, summarize(cells))
    return any(one.measure == "p corrected" and _found(one.value) for one in found)


def _pair_of_table_5(draw: Generator) -> bool:
    cells = [[r for r in cell if r.task == "task0"] for cell in _cells(draw)]
    found = [r for r in differences(cells, summarize(cells)) if r.measure == "p"]
    return _found(found[0].value)


def _figure_4(draw: Generator) -> bool:
    cells = _cells(draw)
    found = [r.value for r in ranks(cells, summarize(cells)) if r.measure == "p"]
    return found[0] <= _LEVEL


def _of(function: str, null: str, wrong: Callable[..., bool], **settings: Any) -> Check:
    own = {key: settings.pop(key) for key in ("kind", "exact") if key in settings}
    return Check(function, null, partial(wrong, **settings), **own)


_N3 = "3 seeds"
CHECKS: Sequence[Check] = (
    _of("mean_interval", f"normal values, {_N3}", _mean, seeds=3, exact=True),
    _of("seed_means, spread_over_seeds", f"{_N3}, 6 orders of each", _mean_over_orders, orders=6,
        exact=True),
    _of("paired_t_test", f"normal scores, {_N3}", _pairs, seeds=3, exact=True),
    _of("holm", f"any of 21 independent tests, {_N3}", _tests, tests=21, exact=True),
    _of(
        "compare_with", f"any of 21 strategies, {_N3}", _any_difference, methods=22, orders=1),
    _of(
        "compare_with", f"any of 4 strategies, {_N3}, 6 orders of each", _any_difference,
        methods=5, orders=6),
    _of("laboratory.sam.ranks", "50 ranks of 10 methods on 5 tasks", _figure_4),
    _of("laboratory.sam.differences", "p of one pair, 3 cells", _pair_of_table_5, exact=True),
    _of("laboratory.sam.differences", "corrected p of any of 45 pairs, 3 cells",
        _any_pair_of_table_5),
    _of("mean_interval", "6 orders of one seed counted as 6 seeds", _orders_as_samples, orders=6,
        kind="dependent"),
)  # fmt: skip
"""All checks, in the order of the table."""
