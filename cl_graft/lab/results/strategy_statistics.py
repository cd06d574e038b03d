"""Statistics of compared strategies: means with intervals, differences, and average ranks.

Seeds are the samples of means and differences, tasks those of ranks. Runs of one seed on several
orders of the tasks share rows, base and heads, so they are averaged before anything is said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from statistics import fmean, stdev

from cl_graft.lab.results.run_results import RunResult
from cl_graft.metrics.statistics import (
    LEAST_SAMPLES,
    average_ranks,
    critical_difference,
    holm,
    mean_interval,
    paired_t_test,
)

_Run = tuple[tuple[str, ...], int]
"""Order of the tasks, and seed."""


@dataclass(frozen=True)
class Spread:
    """A measure over seeds.

    Attributes:
        mean: Mean of the known values; None without any.
        sd: Sample standard deviation; None with fewer than two values.
        interval: Ends of the 95 % interval of the mean; None with fewer than three values.
        n: Number of known values.
    """

    mean: float | None
    sd: float | None
    interval: tuple[float, float] | None
    n: int


@dataclass(frozen=True)
class Difference:
    """The difference of the reference and another strategy in average accuracy.

    In a stream with several metrics it is that of normalized averages.

    Attributes:
        strategy: Name of the other strategy.
        reference: Name of the reference.
        difference: Mean over the seeds that both strategies have, a fraction.
        interval: Ends of its 95 % interval; None where all differences are equal.
        p: p value of the paired t-test; None where all differences are equal.
        n: Number of seeds.
        p_holm: `p` after Holm's correction for all strategies.
    """

    strategy: str
    reference: str
    difference: float
    interval: tuple[float, float] | None
    p: float | None
    n: int
    p_holm: float | None = None


@dataclass(frozen=True)
class Ranks:
    """Average ranks of strategies over tasks.

    Attributes:
        ranks: Average rank by strategy, best first; 1 is best.
        critical_difference: Difference of ranks from which on two strategies can be told apart
            (Nemenyi's test at 5 %).
        tasks: Number of tasks, which are the samples.
    """

    ranks: dict[str, float]
    critical_difference: float
    tasks: int


def seed_means(
    results: Iterable[RunResult], measure: Callable[[RunResult], float | None]
) -> list[float]:
    """Return a measure for every seed, the mean over its orders; a seed without values is left out.

    Args:
        results: Runs of one strategy.
        measure: Function of a run to its value; None where it has none.
    """
    return _by_seed([((tuple(r.tasks), r.seed), measure(r)) for r in results])


def mean_ece(result: RunResult) -> float | None:
    """Average the calibration error of all tasks that have one after the last; None without any."""
    last = [value for value in (result.ece[-1] if result.ece else []) if value is not None]
    return fmean(last) if last else None


def spread_over_seeds(values: Iterable[float | None]) -> Spread:
    """Summarize a measure over seeds.

    Args:
        values: One value a seed; None where a seed has none.
    """
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

    A pair is the means over the orders that both strategies have finished with a seed.

    Args:
        reference: Strategy that the others are compared with.
        results: Finished runs.
        measure: Function of a run to the value that is compared; None where it has none.

    Returns:
        One difference for every other strategy. Strategies that share fewer than three seeds with
        the reference are left out: nothing can be said of them.
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


def rank_strategies(results: Sequence[RunResult]) -> Ranks | None:
    """Rank the strategies on every task at the end, by the mean over seeds and orders, and average.

    A run counts if all strategies have a score on the task with its order and seed. Strategies are
    ranked within a task, by its own metric: nothing is averaged over metrics but ranks.

    Returns:
        The ranks; None with fewer than three strategies.
    """
    by_task: dict[str, dict[_Run, dict[str, float]]] = {}
    for result in results:
        for task, value in zip(result.tasks, result.R[-1], strict=True):
            if value is not None:
                runs = by_task.setdefault(task, {}).setdefault(
                    (tuple(result.tasks), result.seed), {}
                )
                runs[result.strategy] = value
    names = list(dict.fromkeys(result.strategy for result in results))
    scores: dict[str, list[float]] = {name: [] for name in names}
    for runs in by_task.values():
        whole = [run for run in runs.values() if len(run) == len(names)]
        for name in names if whole else ():
            scores[name].append(fmean(run[name] for run in whole))
    tasks = len(scores[names[0]]) if names else 0
    if len(names) < 3 or not tasks:
        return None
    return Ranks(average_ranks(scores), critical_difference(len(names), tasks), tasks)


def _by_seed(values: Iterable[tuple[_Run, float | None]]) -> list[float]:
    """Average the known values of each seed."""
    found: dict[int, list[float]] = {}
    for (_, seed), value in values:
        if value is not None:
            found.setdefault(seed, []).append(value)
    return [fmean(own) for own in found.values()]
