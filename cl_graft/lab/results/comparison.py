"""Records of a comparison: its runs, and the summary of them by strategy.

A comparison shows itself in a notebook and gives its runs to pandas, so that nobody has to read its
files to look at it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from html import escape
from operator import attrgetter
from pathlib import Path
from statistics import fmean, mean
from typing import TYPE_CHECKING, Any

from cl_graft.lab.results.measures import (
    OVER_SEEDS,
    STORED_AS,
    has_one_metric,
    mean_other_score,
    measure,
    measure_along,
    named_measures,
    other_metrics,
    overall_title,
    tasks_by_metric,
)
from cl_graft.lab.results.run_results import RunResult, command
from cl_graft.lab.results.strategy_statistics import (
    Difference,
    Normalization,
    NormalizedScores,
    Spread,
    compare_with,
    mean_ece,
    normalize,
    seed_means,
    spread_over_seeds,
)
from cl_graft.metrics.by_metric import LEAST_REFERENCE
from cl_graft.runtime.escaping import for_terminal

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure


_NONE = Spread(None, None, None, 0)


@dataclass(frozen=True)
class Failure:
    """A run of a comparison that could not be finished, with kind and sentence of the error."""

    strategy: str
    seed: int
    error: str


@dataclass(frozen=True)
class Size:
    """The size at which a strategy stays within a number of bytes a task.

    `setting` makes it as large: one of the strategy, or ``"density"``; empty if none was set.
    `bytes` is what a task is expected to add at most; None for bounds, which are not sized.
    """

    setting: str = ""
    value: bool | int | float | str | None = None
    bytes: int | None = None


@dataclass(frozen=True)
class Budget:
    """A number of bytes a task that strategies are compared at, and why some cannot meet it."""

    bytes_per_task: int
    sizes: dict[str, Size]
    unmet: dict[str, str]


@dataclass(frozen=True)
class SweptValues:
    """The strategy and the swept values, by setting, of a row of a sweep's table."""

    strategy: str
    values: dict[str, Any]


@dataclass(frozen=True)
class StrategySummary:
    """Measures of a strategy over seeds; scores are fractions.

    The first seven are called as functions of `cl_graft.metrics`. They are in the metric that all
    tasks have, and without a value where tasks have several metrics; then `by_metric` has them.

    Attributes:
        routing_accuracy: Share of texts sent to their own task, if the strategy picks tasks.
        passes_per_row: Forward passes to answer a text.
        most_bytes: Bytes that the largest task adds.
        forward_backward: Rows that went forward and backward.
        by_order: Average accuracy (or normalized average) on each order, the mean over seeds.
        of_independent: Average accuracy over that of independent fine-tuning.
        by_metric: Measures by their names in `measures.OVER_SEEDS`, of each metric where tasks have
            several; else empty.
        other_metrics: Means over tasks of `RunResult.other_scores`, by metric.
        same_bits: Tasks whose logits at the end are those of the day they were learned, and all
            tasks, over all runs.
        settings: The strategy's own settings, in its first run.
    """

    average_accuracy: Spread
    backward_transfer: Spread
    forward_transfer: Spread
    forgetting: Spread
    accuracy_over_stream: Spread
    backward_transfer_over_stream: Spread
    forward_transfer_over_stream: Spread
    ece: Spread
    final: dict[str, Spread]
    routing_accuracy: Spread
    passes_per_row: Spread
    bytes_per_task: Spread
    most_bytes: Spread
    seconds: Spread
    forward_backward: Spread
    forward: Spread
    tuning: dict[str, Any]
    by_order: list[float | None] = field(default_factory=list)
    of_independent: float | None = None
    by_metric: dict[str, dict[str, Spread]] = field(default_factory=dict)
    normalized: Spread = _NONE
    other_metrics: dict[str, Spread] = field(default_factory=dict)
    same_bits: tuple[int, int] = (0, 0)
    settings: dict[str, Any] = field(default_factory=dict)

    def measure(self, name: str, metric: str) -> Spread:
        """Return a measure over the tasks of a metric, by its name in `measures.OVER_SEEDS`."""
        return self.by_metric[metric][name] if self.by_metric else getattr(self, STORED_AS[name])

    @property
    def overall(self) -> Spread:
        """What strategies are compared by: average accuracy, or the normalized average."""
        return self.normalized if self.by_metric else self.average_accuracy


@dataclass(frozen=True)
class ComparisonSummary:
    """The summary of a comparison, `summary.json`: measures by strategy, and their differences.

    Attributes:
        tasks: Names of the tasks, in their (first) order.
        strategies: Measures by strategy, and by swept values where there are any.
        orders: Orders of the tasks; empty if there is one.
        config: Settings, as JSON.
        data: Rows used, cut and left out of each task; see `cl_graft.settings.data_report`.
        model: Name, family, fingerprint and number of graftable coordinates of the base.
        machine: Machine of the first run.
        normalization: What the normalized average is a mean of, or why there is none; None where
            all tasks have one metric.
        other_metrics: Metrics of `StrategySummary.other_metrics`, with the number of their tasks.
    """

    tasks: list[str]
    seeds: list[int]
    strategies: dict[str, StrategySummary]
    differences: list[Difference]
    orders: list[list[str]]
    sweep: dict[str, SweptValues]
    budget: Budget | None
    failed: list[Failure]
    config: dict[str, Any]
    data: dict[str, dict[str, Any]]
    model: dict[str, Any]
    versions: dict[str, str]
    machine: dict[str, Any]
    command: str
    metrics: dict[str, str] = field(default_factory=dict)
    normalization: Normalization | None = None
    other_metrics: dict[str, int] = field(default_factory=dict)

    @property
    def overall(self) -> str:
        """Name of what strategies are compared by, such as ``"average accuracy"``."""
        return overall_title(self.metrics)


def summarize(
    results: Sequence[RunResult],
    failed: Sequence[Failure] = (),
    *,
    config: Mapping[str, Any],
    started_by: str | None = None,
    budget: Budget | None = None,
    orders: Sequence[Sequence[str]] = (),
    sweep: Mapping[str, SweptValues] | None = None,
) -> ComparisonSummary:
    """Sum up finished runs: every measure over seeds, by strategy, and which strategies differ.

    Of several orders, a seed's value is the mean over them: runs of one seed are one sample.
    """
    first = results[0]
    names = list(dict.fromkeys(result.strategy for result in results))
    scores = None if has_one_metric(first.metrics) else normalize(results)
    strategies = {
        name: _summarize_strategy([r for r in results if r.strategy == name], first, orders, scores)
        for name in names
    }
    if "independent" in strategies and (best := strategies["independent"].average_accuracy.mean):
        for name, row in strategies.items():
            # A share of a correlation near 0 says nothing.
            if best < LEAST_REFERENCE and "accuracy" not in first.metrics.values():
                break
            if (average := row.average_accuracy.mean) is not None:
                strategies[name] = replace(row, of_independent=average / best)
    return ComparisonSummary(
        tasks=first.tasks,
        seeds=sorted({result.seed for result in results}),
        strategies=strategies,
        differences=compare_with(
            "grafting" if "grafting" in names else names[0],
            results,
            measure=_choose_measure(scores),
        ),
        orders=[list(order) for order in orders],
        sweep=dict(sweep or {}),
        budget=budget,
        failed=list(failed),
        config=dict(config),
        data=first.data,
        model=first.model,
        versions=first.versions,
        machine=first.machine,
        command=started_by or command(),
        metrics=first.metrics,
        normalization=None if scores is None else scores.normalization,
        other_metrics=other_metrics(first),
    )


def _choose_measure(scores: NormalizedScores | None) -> Callable[[RunResult], float | None]:
    """Return the function of a run that gives the number by which strategies are compared."""
    return attrgetter("average_accuracy") if scores is None else scores.average


def _summarize_strategy(
    results: Sequence[RunResult],
    first: RunResult,
    orders: Sequence[Sequence[str]],
    scores: NormalizedScores | None,
) -> StrategySummary:
    def spread(value: Callable[[RunResult], float | None]) -> Spread:
        return spread_over_seeds(seed_means(results, value))

    def of_metric(name: str, metric: str | None = None) -> Spread:
        return spread(partial(measure, name=name, metric=metric))

    compared = _choose_measure(scores)
    over_seeds: dict[str, Any] = {STORED_AS[name]: of_metric(name) for name in OVER_SEEDS}
    hashes = [pair for result in results for pair in result.logit_hashes.values()]
    metrics = {} if scores is None else tasks_by_metric(first.metrics)
    return StrategySummary(
        **over_seeds,
        ece=spread(mean_ece),
        final={
            task: spread(lambda r, task=task: r.R[-1][r.tasks.index(task)]) for task in first.tasks
        },
        routing_accuracy=spread(lambda r: r.routing_accuracy),
        passes_per_row=spread(lambda r: r.passes_per_row),
        bytes_per_task=spread(lambda r: mean(r.bytes.values())),
        most_bytes=spread(lambda r: max(r.bytes.values())),
        seconds=spread(lambda r: r.total_seconds),
        forward_backward=spread(lambda r: r.total_passes.forward_backward),
        forward=spread(lambda r: r.total_passes.forward),
        tuning=results[0].tuning,
        by_order=[
            spread_over_seeds(compared(r) for r in results if r.tasks == list(order)).mean
            for order in orders
        ],
        by_metric={
            metric: {name: of_metric(name, metric) for name in OVER_SEEDS} for metric in metrics
        },
        normalized=spread_over_seeds([] if scores is None else seed_means(results, compared)),
        other_metrics={
            metric: spread(partial(mean_other_score, metric=metric))
            for metric in other_metrics(first)
        },
        same_bits=(sum(pair["learned"] == pair["end"] for pair in hashes), len(hashes)),
        settings=results[0].settings,
    )


@dataclass(frozen=True, repr=False)
class Comparison:
    """The outcome of several strategies and seeds.

    Attributes:
        out: Folder of the comparison.
        runs: Finished runs, by strategy and seed in the order of the config.
        failed: Runs that failed.
        summary: Measures by strategy; None if no run is finished.
    """

    out: Path
    runs: tuple[RunResult, ...]
    failed: tuple[Failure, ...]
    summary: ComparisonSummary | None

    def to_pandas(self) -> pandas.DataFrame:
        """Return a table with one row a run.

        Returns:
            Columns strategy, seed, the measures of the run (fractions; of each metric where tasks
            have several, such as ``"average_f1"``, and their normalized average), the score at the
            end on each task (``"final <task>"``), bytes a task, and seconds.
        """
        import pandas

        scores = normalize(self.runs)
        return pandas.DataFrame([_run_row(run, scores) for run in self.runs])

    def plot(self) -> Figure:
        """Draw the average accuracy over the tasks learned so far, a line a strategy.

        Where tasks have several metrics, it is the normalized average.

        Raises:
            ValueError: If no run is finished, or there is no normalized average.
        """
        if not self.runs:
            raise ValueError("there is nothing to draw: no run of the comparison is finished")
        from cl_graft.lab.figures import stream_curves

        tasks, title = self.runs[0].tasks, overall_title(self.runs[0].metrics)
        scores = normalize(self.runs)
        same_metric = has_one_metric(self.runs[0].metrics)
        if not same_metric and scores.normalization.missing:
            raise ValueError(
                "tasks have several metrics, and their normalized average cannot be drawn: "
                f"{scores.normalization.missing}"
            )
        if any(run.tasks != tasks for run in self.runs):
            tasks = [f"task {number + 1}" for number in range(len(tasks))]
        curves: dict[str, list[list[float | None]]] = {}
        for name in dict.fromkeys(run.strategy for run in self.runs):
            runs = [run for run in self.runs if run.strategy == name]
            curves[name] = (
                measure_along(runs, "average")
                if same_metric
                else [[scores.average(r, learned=i + 1) for i in range(len(r.R))] for r in runs]
            )
        return stream_curves(
            curves,
            tasks,
            title=f"{title[0].upper()}{title[1:]} over the tasks learned so far",
            measure=f"{title} (%)",
        )

    def __repr__(self) -> str:
        failed = f", {len(self.failed)} failed" if self.failed else ""
        runs = "1 run" if len(self.runs) == 1 else f"{len(self.runs)} runs"
        return f"Comparison({str(self.out)!r}, {runs}{failed})"

    def _repr_html_(self) -> str:
        from cl_graft.lab.results.summary_tables import brief_tables, summary_notes

        said = [f"Not finished: {o.strategy}, seed {o.seed}: {o.error}" for o in self.failed]
        if self.summary is None:
            return _paragraphs(said)
        made = "".join(table.html() for table in brief_tables(self.summary))
        return made + _paragraphs([*summary_notes(self.summary), *said])


def _paragraphs(texts: Sequence[str]) -> str:
    return "".join(f"<p>{escape(for_terminal(text))}</p>" for text in texts)


def _run_row(run: RunResult, scores: NormalizedScores) -> Mapping[str, object]:
    same_metric = has_one_metric(run.metrics)
    return {
        "strategy": run.strategy,
        "seed": run.seed,
        **named_measures(run),
        **({} if same_metric else {"normalized_average": scores.average(run)}),
        "ece": mean_ece(run),
        **{f"final {task}": value for task, value in zip(run.tasks, run.R[-1], strict=False)},
        "bytes_per_task": fmean(run.bytes.values()) if run.bytes else None,
        "seconds": run.total_seconds,
    }
