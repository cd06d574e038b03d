"""Statistics of compared strategies: means with intervals, and differences.

Seeds are the samples. Runs of one seed on several orders of the tasks share rows, base and heads,
so they are averaged before anything is said. In a stream with several metrics strategies are
compared by normalized scores, shares of independent fine-tuning's on the task with the same seed:
a mean of accuracies and correlations has no unit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from statistics import fmean, stdev

from cl_graft.lab.results.measures import count_tasks
from cl_graft.lab.results.run_results import RunResult, find_method_name
from cl_graft.lab.results.tables import points
from cl_graft.metrics.by_metric import LEAST_REFERENCE, average_share, too_small
from cl_graft.metrics.statistics import LEAST_SAMPLES, holm, mean_interval, paired_t_test

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
            reference
            for reference in self.references
            if reference.seed == run.seed
            and reference.data_fingerprints == run.data_fingerprints
            and reference.strategy in (_REFERENCE, f"{_REFERENCE} {swept}")
        ]
        fitting.sort(key=lambda r: (r.strategy == _REFERENCE, r.tasks != run.tasks))
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
    ours = scores.pop(reference, {})
    tested: list[Difference] = []
    for name, others in scores.items():
        shared = sorted({*ours} & {*others})
        pairs = [_by_seed([(run, side[run]) for run in shared]) for side in (ours, others)]
        if len(pairs[0]) < LEAST_SAMPLES:
            continue
        differences = [a - b for a, b in zip(*pairs, strict=True)]
        middle, interval = mean_interval(differences)
        _, p = paired_t_test(*pairs)
        interval = None if p is None else interval
        tested.append(Difference(name, reference, middle, interval, p, len(differences)))
    # A test that says nothing counts as one of the tests, or data would decide how many there are.
    corrected = holm([1.0 if each.p is None else each.p for each in tested])
    return [
        replace(each, p_holm=None if each.p is None else p)
        for each, p in zip(tested, corrected, strict=True)
    ]


def _by_seed(values: Iterable[tuple[_Run, float | None]]) -> list[float]:
    by_seed: dict[int, list[float]] = {}
    for (_, seed), value in values:
        if value is not None:
            by_seed.setdefault(seed, []).append(value)
    return [fmean(of_seed) for of_seed in by_seed.values()]
