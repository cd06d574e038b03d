"""Results of a run that never ran, for tests of what is read from results."""

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
    memory={"parameters": 4, "activations": 8, "rows": 2, "tokens": 16},
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
