"""Results of a run that never ran, for tests of what is read from results."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cl_graft.lab.results.run_results import RunResult

RESULT = RunResult(
    strategy="naive",
    seed=0,
    tasks=["a", "b"],
    complete=True,
    R=[[0.9, None], [0.7, 0.8]],
    ece=[[0.1, None], [0.2, 0.4]],
    average_accuracy=0.75,
    backward_transfer=-0.2,
    forward_transfer=None,
    forgetting=0.2,
    metrics={"a": "accuracy", "b": "accuracy"},
    baseline=[None, None],
    coordinates={},
    overlap=None,
    bytes={"a": 8, "b": 12},
    seconds={"a": {"train": 1.0}, "b": {"train": 2.0, "evaluate": 0.5}},
    seconds_saved={"a": {"dense": 4.0}, "b": {}},
    logit_hashes={"a": {"learned": "1", "end": "2"}, "b": {"learned": "3", "end": "3"}},
    schedules={},
    data_fingerprints={"a": "x", "b": "y"},
    model={"name": "m", "family": "encoder", "fingerprint": "f", "graftable": 5},
    versions={},
    machine={},
)


def small_result(**changes: Any) -> RunResult:
    """Return the results of naive fine-tuning on two tasks, with some fields changed."""
    return replace(RESULT, **changes)


def shifted_results() -> list[RunResult]:
    """Return results of three strategies with four seeds each, whose scores differ by shifts."""
    shifts = {
        "grafting": [0.10, 0.11, 0.12, 0.13],
        "naive": [0.02, 0.05, 0.03, 0.04],
        "independent": [0.11, 0.10, 0.13, 0.12],
    }
    return [
        small_result(
            strategy=strategy,
            seed=seed,
            R=[[0.5 + shift, None], [0.5 + shift, 0.5 + shift]],
            average_accuracy=0.5 + shift,
        )
        for strategy, own in shifts.items()
        for seed, shift in enumerate(own)
    ]


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
