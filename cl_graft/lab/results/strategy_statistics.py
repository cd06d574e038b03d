"""Statistics of compared strategies: means with intervals, and differences.

Seeds are the samples. Runs of one seed on several orders of the tasks share rows, base and heads,
so they are averaged before anything is said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from statistics import fmean, stdev

from cl_graft.lab.results.run_results import RunResult
from cl_graft.metrics.statistics import (
    LEAST_SAMPLES,
    holm,
    mean_interval,
    paired_t_test,
)

_Run = tuple[tuple[str, ...], int]
"""Order of the tasks, and seed."""


@dataclass(frozen=True)
class Spread:
    """A measure over seeds: mean, sample standard deviation and 95 % interval.

    The mean is None without values, the deviation with fewer than two, the interval with fewer than
    three; `n` is the number of values.
    """

    mean: float | None
    sd: float | None
    interval: tuple[float, float] | None
    n: int


@dataclass(frozen=True)
class Difference:
    """The mean difference of the reference and another strategy over the `n` seeds that both have.

    It is of average accuracies, or of normalized averages in a stream with several metrics, as a
    fraction. Interval and p of the paired t-test are None where all differences are equal.
    """

    strategy: str
    reference: str
    difference: float
    interval: tuple[float, float] | None
    p: float | None
    n: int
    p_holm: float | None = None


def seed_means(
    results: Iterable[RunResult], measure: Callable[[RunResult], float | None]
) -> list[float]:
    """Return a measure for every seed that has it, the mean over the orders of tasks."""
    return _by_seed([((tuple(r.tasks), r.seed), measure(r)) for r in results])


def mean_ece(result: RunResult) -> float | None:
    """Average the calibration error of all tasks that have one after the last; None without any."""
    last = [value for value in (result.ece[-1] if result.ece else []) if value is not None]
    return fmean(last) if last else None


def spread_over_seeds(values: Iterable[float | None]) -> Spread:
    """Summarize a measure over seeds."""
    known = [value for value in values if value is not None]
    if not known:
        return Spread(None, None, None, 0)
    middle, interval = mean_interval(known)
    return Spread(middle, stdev(known) if len(known) > 1 else None, interval, len(known))


def compare_with(
    reference: str,
    results: Sequence[RunResult],
    *,
    measure: Callable[[RunResult], float | None] = attrgetter("average_accuracy"),
) -> list[Difference]:
    """Test every strategy against one, paired by seed, on the average accuracy.

    A pair is the means over the orders that both strategies have finished with a seed; who shares
    fewer than three seeds with the reference is left out, as nothing can be said.
    """
    scores: dict[str, dict[_Run, float]] = {}
    for result in results:
        if (value := measure(result)) is not None:
            run = tuple(result.tasks), result.seed
            scores.setdefault(result.strategy, {})[run] = value
    own = scores.pop(reference, {})
    found: list[Difference] = []
    for name, others in scores.items():
        shared = sorted({*own} & {*others})
        pairs = [_by_seed([(run, side[run]) for run in shared]) for side in (own, others)]
        if len(pairs[0]) < LEAST_SAMPLES:
            continue
        differences = [a - b for a, b in zip(*pairs, strict=True)]
        middle, interval = mean_interval(differences)
        _, p = paired_t_test(*pairs)
        interval = None if p is None else interval
        found.append(Difference(name, reference, middle, interval, p, len(differences)))
    # A test that says nothing counts as one of the tests, or data would decide how many there are.
    corrected = holm([1.0 if one.p is None else one.p for one in found])
    return [
        replace(one, p_holm=None if one.p is None else p)
        for one, p in zip(found, corrected, strict=True)
    ]


def _by_seed(values: Iterable[tuple[_Run, float | None]]) -> list[float]:
    """Average the known values of each seed."""
    found: dict[int, list[float]] = {}
    for (_, seed), value in values:
        if value is not None:
            found.setdefault(seed, []).append(value)
    return [fmean(own) for own in found.values()]
