"""Results of a stream with three metrics that never ran, in numbers to be checked by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from small_results import small_result

from cl_graft.lab.results.run_results import RunResult

METRICS = {"topic": "accuracy", "mrpc": "f1", "cola": "matthews", "sst2": "accuracy"}

FINAL = {
    "grafting": (0.80, 0.60, 0.30, 0.90),
    "naive": (0.40, 0.30, -0.10, 0.90),
    "independent": (0.80, 0.75, 0.40, 0.90),
}
"""Scores at the end with the seed 0; with the seed k each is k hundredths more."""

LEARNED = {
    "grafting": FINAL["grafting"],
    "naive": (0.80, 0.70, 0.20, 0.90),
    "independent": FINAL["independent"],
}
"""Scores right after a task was learned."""


def mixed_results(
    strategies: Sequence[str] = tuple(FINAL), *, seeds: Sequence[int] = (0, 1, 2), **changes: Any
) -> list[RunResult]:
    """Return the results of strategies on four tasks with three metrics."""
    return [_result(name, seed, changes) for name in strategies for seed in seeds]


def _result(strategy: str, seed: int, changes: dict[str, Any]) -> RunResult:
    tasks, more = list(METRICS), seed / 100
    learned = [score + more for score in LEARNED[strategy]]
    final = [score + more for score in FINAL[strategy]]
    R = [[learned[j] if j <= i else None for j in range(4)] for i in range(3)] + [final]
    values: dict[str, Any] = {
        "strategy": strategy,
        "seed": seed,
        "tasks": tasks,
        "metrics": METRICS,
        "R": R,
        "ece": [[0.1 if j <= i else None for j in range(4)] for i in range(4)],
        **dict.fromkeys(("average_accuracy", "backward_transfer", "forgetting")),
        "baseline": [None] * 4,
        "bytes": dict.fromkeys(tasks, 8),
        "seconds": {task: {"train": 1.0} for task in tasks},
        "seconds_saved": {task: {} for task in tasks},
        "logit_hashes": {task: {"learned": "1", "end": "1"} for task in tasks},
        "data_fingerprints": {task: task for task in tasks},
    }
    return small_result(**(values | changes))
