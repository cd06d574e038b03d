"""What a comparison lets one say: how sure means are, which strategies differ, and their ranks.

Seeds are the samples of means and differences, tasks those of ranks. Runs of one seed on several
orders of the tasks share rows, base and heads, so they are averaged before anything is said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean, stdev
from typing import Any

from cl_graft.metrics.ranks import average_ranks, critical_difference
from cl_graft.metrics.significance import LEAST_SAMPLES, holm, mean_interval, paired_t_test
from cl_graft.results.run_results import RunResult

__all__ = ["differences_of", "over_seeds", "ranks_of", "seed_means"]

Cell = tuple[tuple[str, ...], int]
"""Order of the tasks, and seed."""


def seed_means(
    results: Iterable[RunResult], measure: Callable[[RunResult], float | None]
) -> list[float]:
    """Return a measure for every seed, the mean over its orders; a seed without values is left out.

    Args:
        results: Runs of one strategy.
        measure: Of a run; None where it has none.
    """
    return _by_seed([((tuple(r.tasks), r.seed), measure(r)) for r in results])


def over_seeds(values: Iterable[float | None]) -> dict[str, Any]:
    """Return mean, sample standard deviation, 95 % interval and number of the known values.

    The interval is None where `mean_interval` knows none: with fewer than three values.

    Args:
        values: One a seed.
    """
    known = [value for value in values if value is not None]
    if not known:
        return {"mean": None, "sd": None, "interval": None, "n": 0}
    middle, interval = mean_interval(known)
    return {
        "mean": middle,
        "sd": stdev(known) if len(known) > 1 else None,
        "interval": list(interval) if interval else None,
        "n": len(known),
    }


def differences_of(results: Sequence[RunResult], *, reference: str) -> list[dict[str, Any]]:
    """Test every strategy against one, paired by seed, on the average accuracy.

    A pair is the means over the orders that both strategies have finished with a seed.

    Args:
        results: Finished runs.
        reference: The strategy that the others are compared with.

    Returns:
        By strategy: how much better the reference is on average over the seeds that both have, the
        95 % interval of that, p of the paired t-test, and p after Holm's correction for all of
        them; None where all differences are equal. Strategies that share fewer than three seeds
        with the reference are left out: nothing can be said of them.
    """
    scores: dict[str, dict[Cell, float]] = {}
    for result in results:
        if result.average_accuracy is not None:
            cell = tuple(result.tasks), result.seed
            scores.setdefault(result.strategy, {})[cell] = result.average_accuracy
    own, found = scores.pop(reference, {}), []
    for name, others in scores.items():
        shared = sorted({*own} & {*others})
        pairs = [_by_seed([(cell, side[cell]) for cell in shared]) for side in (own, others)]
        if len(pairs[0]) < LEAST_SAMPLES:
            continue
        differences = [a - b for a, b in zip(*pairs, strict=True)]
        middle, interval = mean_interval(differences)
        _, p = paired_t_test(*pairs)
        found.append(
            {
                "strategy": name,
                "reference": reference,
                "difference": middle,
                "interval": list(interval) if interval and p is not None else None,
                "p": p,
                "n": len(differences),
            }
        )
    # A test that says nothing counts as one of the tests, or data would decide how many there are.
    corrected = holm([1.0 if row["p"] is None else row["p"] for row in found])
    for row, p in zip(found, corrected, strict=True):
        row["p_holm"] = None if row["p"] is None else p
    return found


def ranks_of(results: Sequence[RunResult]) -> dict[str, Any] | None:
    """Rank the strategies on every task at the end, by the mean over seeds and orders, and average.

    Returns:
        ``"ranks"`` by strategy, best first, ``"critical_difference"`` (Nemenyi's, 5 %) and the
        number of ``"tasks"``, which are its samples; None with fewer than three strategies. A run
        counts if all strategies have a score on the task with its order and seed.
    """
    cells: dict[str, dict[Cell, dict[str, float]]] = {}
    for result in results:
        for task, value in zip(result.tasks, result.R[-1], strict=True):
            if value is not None:
                runs = cells.setdefault(task, {}).setdefault((tuple(result.tasks), result.seed), {})
                runs[result.strategy] = value
    names = list(dict.fromkeys(result.strategy for result in results))
    scores: dict[str, list[float]] = {name: [] for name in names}
    for runs in cells.values():
        whole = [run for run in runs.values() if len(run) == len(names)]
        for name in names if whole else ():
            scores[name].append(fmean(run[name] for run in whole))
    tasks = len(scores[names[0]]) if names else 0
    if len(names) < 3 or not tasks:
        return None
    return {
        "ranks": average_ranks(scores),
        "critical_difference": critical_difference(len(names), tasks),
        "tasks": tasks,
    }


def _by_seed(values: Iterable[tuple[Cell, float | None]]) -> list[float]:
    """Average the known values of each seed."""
    found: dict[int, list[float]] = {}
    for (_, seed), value in values:
        if value is not None:
            found.setdefault(seed, []).append(value)
    return [fmean(own) for own in found.values()]
