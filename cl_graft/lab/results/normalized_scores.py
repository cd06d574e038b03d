"""Normalized scores: each as a share of independent fine-tuning's on the task, with the same seed.

In a stream with several metrics they are what strategies are compared by, as a mean of accuracies
and correlations has no unit and a mean of shares has one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cl_graft.lab.results.measures import count_tasks
from cl_graft.lab.results.run_results import RunResult, find_method_name
from cl_graft.lab.results.tables import points
from cl_graft.metrics.by_metric import LEAST_REFERENCE, average_share, too_small

_REFERENCE = "independent"


@dataclass(frozen=True)
class Normalization:
    """The reference of a normalized average, and the tasks that it is a mean over.

    `left_out` has the tasks whose reference is below `LEAST_REFERENCE`, with its lowest score;
    `missing` says why there is no normalized average, and is empty if there is one.
    """

    reference: str
    tasks: list[str]
    left_out: dict[str, float]
    missing: str = ""


@dataclass(frozen=True)
class NormalizedScores:
    """Normalized averages of runs."""

    normalization: Normalization
    references: Sequence[RunResult]

    def average(self, run: RunResult, *, learned: int | None = None) -> float | None:
        """Return the normalized average of a run: the mean over tasks of score / reference.

        It is None without a reference of the same seed and data, or if a score is missing. After
        the first `learned` tasks it is over these.
        """
        reference = self._find(run)
        if reference is None or not run.R:
            return None
        size = len(run.R) if learned is None else learned
        there = _last_scores(reference)
        here = dict(zip(run.tasks[:size], run.R[size - 1], strict=False))
        tasks = [task for task in here if task in self.normalization.tasks]
        return average_share([here[task] for task in tasks], [there[task] for task in tasks])

    def _find(self, run: RunResult) -> RunResult | None:
        """Return the reference of a run: with its settings and order, if there are several."""
        swept = run.strategy.partition(" ")[2]
        fitting = [
            one
            for one in self.references
            if one.seed == run.seed
            and one.data_fingerprints == run.data_fingerprints
            and one.strategy in (_REFERENCE, f"{_REFERENCE} {swept}")
        ]
        fitting.sort(key=lambda one: (one.strategy == _REFERENCE, one.tasks != run.tasks))
        return fitting[0] if fitting else None


def normalize(runs: Sequence[RunResult]) -> NormalizedScores:
    """Find what the scores of finished runs of the same tasks are shares of."""
    references = [run for run in runs if run.R and find_method_name(run.strategy) == _REFERENCE]
    others = [run for run in runs if find_method_name(run.strategy) != _REFERENCE]
    known = [
        {task: score for task, score in _last_scores(run).items() if score is not None}
        for run in references
    ]
    left_out = too_small(known)
    tasks = [task for task in (runs[0].tasks if runs else ()) if task not in left_out]
    scores = NormalizedScores(Normalization(_REFERENCE, tasks, left_out), references)
    if not references:
        missing = "there is no run of independent fine-tuning"
    elif not tasks:
        missing = (
            f"independent fine-tuning scores less than {points(LEAST_REFERENCE)} points on every "
            "task"
        )
    elif others and all(scores.average(run) is None for run in others):
        missing = "no run of independent fine-tuning has the seed and the data of another run"
    else:
        return scores
    return NormalizedScores(Normalization(_REFERENCE, [], left_out, missing), ())


def normalization_text(normalization: Normalization, metrics: Mapping[str, str]) -> str:
    """Say what the normalized average is a mean of, or why there is none."""
    if normalization.missing:
        return (
            f"There is no normalized average, and differences are not tested: "
            f"{normalization.missing}."
        )
    text = (
        f"The normalized average is the mean over {count_tasks(len(normalization.tasks))} of the "
        "score as a share of independent fine-tuning's on the same task with the same seed, in %."
    )
    if normalization.left_out:
        said = ", ".join(
            f"{task} ({metrics[task]}), where it scored {points(score)}"
            for task, score in normalization.left_out.items()
        )
        text += f" No share is taken of less than {points(LEAST_REFERENCE)}: left out is {said}."
    return text


def _last_scores(run: RunResult) -> dict[str, float | None]:
    return dict(zip(run.tasks, run.R[-1], strict=False))
