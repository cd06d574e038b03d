"""What a comparison lets one say: how sure means are, which strategies differ, and their ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import stdev
from typing import Any

from cl_graft.analysis import (
    average_ranks,
    critical_difference,
    holm,
    mean_interval,
    paired_t_test,
)
from cl_graft.experiments.results import RunResult

__all__ = ["differences_of", "over_seeds", "ranks_of"]


def over_seeds(values: Iterable[float | None]) -> dict[str, Any]:
    """Return mean, sample standard deviation, 95 % interval and number of the known values."""
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
    """Test every strategy against one: paired by order and seed, on the average accuracy.

    Args:
        results: Finished runs.
        reference: The strategy that the others are compared with.

    Returns:
        By strategy: how much better the reference is on average over the runs that both have, the
        95 % interval of that, p of the paired t-test, and p after Holm's correction for all of
        them. Empty where no other strategy shares two runs with the reference.
    """
    scores: dict[str, dict[tuple[tuple[str, ...], int], float]] = {}
    for result in results:
        if result.average_accuracy is not None:
            cell = tuple(result.tasks), result.seed
            scores.setdefault(result.strategy, {})[cell] = result.average_accuracy
    own, found = scores.pop(reference, {}), []
    for name, others in scores.items():
        seeds = sorted({*own} & {*others})
        if len(seeds) < 2:
            continue
        pairs = [own[seed] for seed in seeds], [others[seed] for seed in seeds]
        middle, interval = mean_interval([a - b for a, b in zip(*pairs, strict=True)])
        found.append(
            {
                "strategy": name,
                "reference": reference,
                "difference": middle,
                "interval": list(interval or ()),
                "p": paired_t_test(*pairs)[1],
                "n": len(seeds),
            }
        )
    for row, corrected in zip(found, holm([row["p"] for row in found]), strict=True):
        row["p_holm"] = corrected
    return found


def ranks_of(results: Sequence[RunResult]) -> dict[str, Any] | None:
    """Rank the strategies on every task at the end with every seed, and average.

    Returns:
        ``"ranks"`` by strategy, best first, ``"critical_difference"`` (Nemenyi's, 5 %) and the
        number of ``"comparisons"``; None with fewer than three strategies. A task with a seed
        counts if all strategies have a score there.
    """
    cells: dict[tuple[tuple[str, ...], int, str], dict[str, float]] = {}
    for result in results:
        for task, value in zip(result.tasks, result.R[-1], strict=True):
            if value is not None:
                cell = tuple(result.tasks), result.seed, task
                cells.setdefault(cell, {})[result.strategy] = value
    names = list(dict.fromkeys(result.strategy for result in results))
    whole = [cell for cell in cells.values() if len(cell) == len(names)]
    if len(names) < 3 or not whole:
        return None
    scores: Mapping[str, list[float]] = {name: [cell[name] for cell in whole] for name in names}
    return {
        "ranks": average_ranks(scores),
        "critical_difference": critical_difference(len(names), len(whole)),
        "comparisons": len(whole),
    }
