"""Records of a comparison: its runs, and the summary of them by strategy.

A comparison shows itself in a notebook and gives its runs to pandas, so that nobody has to read its
files to look at it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from operator import attrgetter
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from cl_graft.results.formatting import html_table, spread_text
from cl_graft.results.run_results import RunResult
from cl_graft.results.strategy_statistics import (
    Difference,
    Ranks,
    Spread,
    mean_ece,
    seed_means,
    spread_over_seeds,
)
from cl_graft.runtime.escaping import for_terminal

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

__all__ = [
    "Budget",
    "Comparison",
    "ComparisonSummary",
    "Failure",
    "Size",
    "StrategySummary",
    "SweptValues",
    "comparison_rows",
]

_MEASURES = ("average_accuracy", "backward_transfer", "forward_transfer", "forgetting")


@dataclass(frozen=True)
class Failure:
    """A run of a comparison that could not be finished.

    Attributes:
        strategy: Name of the strategy.
        seed: Seed of the run.
        error: Kind and sentence of the error.
    """

    strategy: str
    seed: int
    error: str


@dataclass(frozen=True)
class Size:
    """The size at which a strategy stays within a number of bytes a task.

    Attributes:
        setting: Setting that makes it as large: one of the strategy, or ``"density"``; empty if
            none was set.
        value: Value of the setting.
        bytes: Bytes that a task is expected to add at most, its head counted, the mean over the
            stream; None for bounds, which are not sized.
    """

    setting: str = ""
    value: bool | int | float | str | None = None
    bytes: int | None = None


@dataclass(frozen=True)
class Budget:
    """A number of bytes a task that strategies are compared at.

    Attributes:
        bytes_per_task: Bytes that a task may add.
        sizes: Sizes of the strategies that fit, by name.
        unmet: Reasons why the others do not fit, by name.
    """

    bytes_per_task: int
    sizes: dict[str, Size]
    unmet: dict[str, str]


@dataclass(frozen=True)
class SweptValues:
    """The values that were set for a row of a sweep's table.

    Attributes:
        strategy: Name of the strategy.
        values: Values by the name of the setting.
    """

    strategy: str
    values: dict[str, Any]


@dataclass(frozen=True)
class StrategySummary:
    """Measures of a strategy over seeds; scores are fractions.

    Attributes:
        average_accuracy: See `cl_graft.metrics.average_accuracy`.
        backward_transfer: See `cl_graft.metrics.backward_transfer`.
        forward_transfer: See `cl_graft.metrics.forward_transfer`.
        forgetting: See `cl_graft.metrics.forgetting`.
        accuracy_over_stream: See `cl_graft.metrics.accuracy_over_stream`.
        backward_transfer_over_stream: See `cl_graft.metrics.backward_transfer_over_stream`.
        forward_transfer_over_stream: See `cl_graft.metrics.forward_transfer_over_stream`.
        ece: Expected calibration error at the end, the mean over tasks.
        final: Score at the end by task.
        sent_right: Share of texts that were sent to their own task, if the strategy picks tasks.
        passes_per_row: Forward passes to answer a text.
        bytes_per_task: Bytes that a task adds, the mean over tasks.
        most_bytes: Bytes that the largest task adds.
        seconds: Wall time of all phases, in seconds.
        forward_backward: Rows that went forward and backward.
        forward: Rows that went forward alone.
        tuning: Grid, scores and chosen values of the strategy's tuning; empty without tuning.
        by_order: Average accuracy on each order of the tasks, the mean over seeds.
        of_independent: Average accuracy over that of independent fine-tuning.
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
    sent_right: Spread
    passes_per_row: Spread
    bytes_per_task: Spread
    most_bytes: Spread
    seconds: Spread
    forward_backward: Spread
    forward: Spread
    tuning: dict[str, Any]
    by_order: list[float | None] = field(default_factory=list)
    of_independent: float | None = None


@dataclass(frozen=True)
class ComparisonSummary:
    """The summary of a comparison, `summary.json`: measures by strategy, and their differences.

    Attributes:
        tasks: Names of the tasks, in their (first) order.
        seeds: Seeds of the runs, ascending.
        strategies: Measures by strategy, and by swept values where there are any.
        differences: Differences to one strategy, the reference.
        ranks: Average ranks; None with fewer than three strategies.
        orders: Orders of the tasks; empty if there is one.
        sweep: Swept values by row of the table.
        budget: Bytes a task that the strategies were sized to; None if they were not.
        failed: Runs that failed.
        config: Settings, as JSON.
        data: Rows used, cut and left out of each task; see `cl_graft.results.data_report`.
        model: Name, family, fingerprint and number of graftable coordinates of the base.
        versions: Versions of the packages.
        machine: Machine of the first run.
        command: Command line that started the comparison.
    """

    tasks: list[str]
    seeds: list[int]
    strategies: dict[str, StrategySummary]
    differences: list[Difference]
    ranks: Ranks | None
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
            Columns strategy, seed, the measures of the run (fractions), the score at the end on
            each task (``"final <task>"``), bytes a task, and seconds.
        """
        import pandas

        return pandas.DataFrame([_run_row(run) for run in self.runs])

    def plot(self) -> Figure:
        """Draw the average accuracy over the tasks learned so far, a line a strategy.

        Raises:
            ValueError: If no run is finished.
        """
        if not self.runs:
            raise ValueError("there is nothing to draw: no run of the comparison is finished")
        from cl_graft.figures.stream_curves import stream_curves
        from cl_graft.results.stream_measures import accuracy_after

        tasks = self.runs[0].tasks
        if any(run.tasks != tasks for run in self.runs):
            tasks = [f"task {place + 1}" for place in range(len(tasks))]
        return stream_curves(
            {
                name: accuracy_after([run for run in self.runs if run.strategy == name])
                for name in dict.fromkeys(run.strategy for run in self.runs)
            },
            tasks,
            title="Average accuracy over the tasks learned so far",
            measure="average accuracy (%)",
        )

    def __repr__(self) -> str:
        failed = f", {len(self.failed)} failed" if self.failed else ""
        return f"Comparison({str(self.out)!r}, {len(self.runs)} runs{failed})"

    def _repr_html_(self) -> str:
        """Return the table of the strategies for a notebook."""
        failed = [
            escape(for_terminal(f"Not finished: {one.strategy}, seed {one.seed}: {one.error}"))
            for one in self.failed
        ]
        text = "".join(f"<p>{line}</p>" for line in failed)
        return html_table(*comparison_rows(self.runs)) + text if self.runs else text


def comparison_rows(runs: Sequence[RunResult]) -> tuple[str, list[str], list[list[str]]]:
    """Return a table of the measures of each strategy: its title, its columns and its rows.

    Each value is the mean ± standard deviation over seeds, in points.
    """
    rows = []
    for strategy in dict.fromkeys(run.strategy for run in runs):
        own = [run for run in runs if run.strategy == strategy]
        measures = (attrgetter(name) for name in _MEASURES)
        spreads = (spread_over_seeds(seed_means(own, measure)) for measure in measures)
        rows.append([strategy, *map(spread_text, spreads)])
    seeds = len({run.seed for run in runs})
    columns = ["strategy", *(name.replace("_", " ") for name in _MEASURES)]
    return f"{seeds} seed{'s' if seeds > 1 else ''}, in points", columns, rows


def _run_row(run: RunResult) -> Mapping[str, object]:
    return {
        "strategy": run.strategy,
        "seed": run.seed,
        **{name: getattr(run, name) for name in _MEASURES},
        "ece": mean_ece(run),
        **{f"final {task}": value for task, value in zip(run.tasks, run.R[-1], strict=False)},
        "bytes_per_task": fmean(run.bytes.values()) if run.bytes else None,
        "seconds": run.total_seconds,
    }
