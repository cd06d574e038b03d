"""Tables of a comparison's summary, alike in the terminal, in files and on the report's page."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cl_graft.errors import join_names
from cl_graft.lab.results.comparison import ComparisonSummary, StrategySummary
from cl_graft.lab.results.measures import (
    MEASURES,
    count_tasks,
    has_one_metric,
    measure_title,
    metrics_text,
    tasks_by_metric,
)
from cl_graft.lab.results.run_results import find_method_name
from cl_graft.lab.results.strategy_statistics import Difference, Spread, normalization_text
from cl_graft.lab.results.tables import Cell, Table, make_points, make_row, points, spread_text
from cl_graft.strategies.registry import STRATEGIES

_MOST_TASKS = 12
"""Tasks that have a column of their own."""
_MANY = 1.5
"""Ratio of training rows from which it is said."""
_TRAINS = {
    "per_task": "parameters of each task",
    "nothing": "nothing: it answers with the dense run",
}


@dataclass(frozen=True)
class MeasureColumn:
    """A measure of every strategy over seeds; numbers are shown times `scale`."""

    title: str
    spreads: dict[str, Spread]
    lower_is_better: bool = False
    scale: float = 100
    digits: int = 1

    def cells(self) -> list[Cell]:
        """Write the values as mean ± standard deviation, the best marked."""
        known = {s.mean for s in self.spreads.values() if s.mean is not None}
        best = (min if self.lower_is_better else max)(known) if len(known) > 1 else None
        return [
            Cell(
                spread_text(spread, scale=self.scale, digits=self.digits),
                spread.mean,
                best=best is not None and spread.mean == best,
            )
            for spread in self.spreads.values()
        ]


def average_columns(summary: ComparisonSummary) -> list[MeasureColumn]:
    """Return the average of each metric, behind the normalized average where there is one."""
    columns = measure_columns(summary, "average")
    if summary.normalization is None or summary.normalization.missing:
        return columns
    return [_column(summary, summary.overall, lambda row: row.normalized), *columns]


def measure_columns(summary: ComparisonSummary, name: str) -> list[MeasureColumn]:
    """Return a measure of each metric: one column where all tasks have one."""
    groups = tasks_by_metric(summary.metrics) or {"accuracy": summary.tasks}
    return [
        _column(
            summary,
            measure_title(name, metric, tasks=None if len(groups) == 1 else len(tasks)),
            lambda row, metric=metric: row.measure(name, metric),
            lower=name == "forgetting",
        )
        for metric, tasks in groups.items()
    ]


def brief_tables(summary: ComparisonSummary) -> list[Table]:
    """Show the measures, bytes and seconds of each strategy, for a terminal or a notebook.

    Where tasks have several metrics, transfers and forgetting are in a second table.
    """
    columns = [
        *_measures(summary),
        _column(summary, "bytes a task", lambda row: row.bytes_per_task, scale=1, digits=0),
        _column(summary, "seconds", lambda row: row.seconds, scale=1),
    ]
    seeds = len(summary.seeds)
    caption = f"{seeds} seed{'s' if seeds > 1 else ''}, in points"
    cells = [(column.title, column.cells()) for column in _drop_empty(columns)]
    made = [_table(caption, summary, cells)]
    return made if has_one_metric(summary.metrics) else [*made, by_metric(summary)]


def scores(summary: ComparisonSummary) -> Table:
    """Compare the strategies by all measures and by the score at the end on each task."""
    rows, tests = summary.strategies, {test.strategy: test for test in summary.differences}
    columns = [
        *_measures(summary),
        _column(summary, "ECE", lambda row: row.ece, lower=True),
        _column(summary, "routing accuracy", lambda row: row.routing_accuracy),
    ]
    made = [(column.title, column.cells()) for column in _drop_empty(columns)]
    if any(row.of_independent is not None for row in rows.values()):
        shares = [row.of_independent for row in rows.values()]
        cells = [Cell("–" if share is None else f"{share:.3f}", share) for share in shares]
        made.append(("of independent", cells))
    caption = "Scores at the end, in points"
    if len(summary.seeds) > 1:
        caption += ": mean ± standard deviation over seeds"
    if tests:
        reference = summary.differences[0].reference
        made.append((f"{reference} is better by", [_difference(tests.get(n)) for n in rows]))
        made.append(("p", [_sure(tests.get(n)) for n in rows]))
        caption += (
            "; the difference with its 95 % interval and the p of a paired t-test over seeds, "
        )
        caption += "corrected after Holm"
        caption += "" if has_one_metric(summary.metrics) else ", on the normalized average"
    counts = [row.same_bits for row in rows.values()]
    cells = [Cell(f"{same} of {count}", same / count if count else None) for same, count in counts]
    made.append(("same bits at the end", cells))
    for task in summary.tasks if len(summary.tasks) <= _MOST_TASKS else ():
        made.append((task, _column(summary, task, lambda row, t=task: row.final[t]).cells()))
    return _table(caption, summary, made)


def by_metric(summary: ComparisonSummary) -> Table:
    """Show transfer and forgetting of each metric, the best of a metric marked."""
    held = [by_name for row in summary.strategies.values() for by_name in row.by_metric.values()]
    known = [name for name in MEASURES[1:] if any(by_name[name].n for by_name in held)]
    rows: dict[str, list[tuple[Cell, ...]]] = {name: [] for name in summary.strategies}
    for metric, tasks in tasks_by_metric(summary.metrics).items():
        columns = [
            _column(
                summary,
                name,
                lambda row, name=name, metric=metric: row.by_metric[metric][name],
                lower=name == "forgetting",
            ).cells()
            for name in known
        ]
        said = f"{metric.replace('_', ' ')} ({count_tasks(len(tasks))})"
        for strategy, *cells in zip(rows, *columns, strict=True):
            rows[strategy].append(make_row(strategy, said, *cells))
    return Table(
        "Transfer and forgetting at the end, in points, over the tasks of one metric each",
        ("strategy", "metric", *(name.replace("_", " ") for name in known)),
        tuple(row for by_name in rows.values() for row in by_name),
    )


def other_metrics(summary: ComparisonSummary) -> Table:
    """Compare the strategies by metrics that are not the tasks' own, the best of each marked."""
    columns = [
        _column(
            summary,
            f"{metric.replace('_', ' ')} ({count_tasks(count)})",
            lambda row, metric=metric: row.other_metrics[metric],
        )
        for metric, count in summary.other_metrics.items()
    ]
    caption = "Scores at the end by other metrics, in points, the mean over the tasks that have one"
    return _table(caption, summary, [(column.title, column.cells()) for column in columns])


def by_order(summary: ComparisonSummary) -> Table:
    """Show what strategies are compared by on every order of the tasks; the mean over seeds."""
    rows = tuple(
        make_row(
            " → ".join(order),
            *(make_points(row.by_order[number]) for row in summary.strategies.values()),
        )
        for number, order in enumerate(summary.orders)
    )
    title = f"{summary.overall[0].upper()}{summary.overall[1:]} by order"
    return Table(title, ("order", *summary.strategies), rows, sortable=False)


def budget(summary: ComparisonSummary) -> Table:
    """Show how large each strategy was made within the bytes a task, and what it stored."""
    limit = summary.budget.bytes_per_task if summary.budget else 1
    sizes = summary.budget.sizes if summary.budget else {}
    rows = tuple(
        make_row(
            name,
            f"{size.setting} {size.value:g}" if size.setting else "as it is",
            Cell(spread_text(row.bytes_per_task, scale=1, digits=0), row.bytes_per_task.mean),
            Cell(f"{(row.bytes_per_task.mean or 0.0) / limit:.0%}", row.bytes_per_task.mean),
            Cell(spread_text(row.most_bytes, scale=1, digits=0), row.most_bytes.mean),
        )
        for name, row in summary.strategies.items()
        for size in [sizes[name]]
    )
    head = ("strategy", "its size", "bytes a task", "of the budget", "largest task")
    return Table(f"At most {limit:,} bytes a task", head, rows)


def tuned_values(summary: ComparisonSummary) -> Table:
    """Show which values were chosen of each strategy's grid."""
    rows = tuple(
        make_row(
            name,
            "; ".join(f"{n}: {', '.join(map(str, v))}" for n, v in tuning["grid"].items()),
            _values(tuning["chosen"], marked=settings_at_edge(tuning)),
            "; ".join(f"{_values(s['values'])}: {points(s['score'])}" for s in tuning["scores"]),
        )
        for name, row in summary.strategies.items()
        if (tuning := row.tuning)
    )
    head = ("strategy", "grid", "chosen", "dev score of each")
    return Table("Tuned values", head, rows, sortable=False)


def summary_notes(summary: ComparisonSummary) -> list[str]:
    """Say what measures are means of, and which strategies trained on many more rows."""
    notes = [] if has_one_metric(summary.metrics) else [metrics_text(summary.metrics)]
    if summary.normalization is not None:
        notes.append(normalization_text(summary.normalization, summary.metrics))
    note = note_on_rows(summary)
    return [*notes, note] if note else notes


def note_on_rows(summary: ComparisonSummary) -> str:
    """Say which strategies trained on far more rows than another; empty where none did."""
    rows = {name: row.forward_backward.mean for name, row in summary.strategies.items()}
    known = {name: count for name, count in rows.items() if count}
    if not known:
        return ""
    fewest = min(known, key=lambda name: known[name])
    many = {n: times for n, count in known.items() if (times := count / known[fewest]) >= _MANY}
    if not many:
        return ""
    said = join_names(f"{name} had {times:.1f}" for name, times in many.items())
    note = f"Training rows differ: {said} times as many as {fewest}."
    flags: dict[str, str] = {}
    for method in ("independent", "lora"):
        counts = [count for name, count in known.items() if find_method_name(name) == method]
        if counts and (factor := max(known.values()) / max(counts)) >= _MANY:
            flags[method] = f"--sweep {method}.times_steps=1,{factor:.1f}"
    if flags:
        note += (
            f" {' '.join(flags.values())} adds {join_names(flags)} with as many rows as the most."
        )
    return note


def settings_at_edge(tuning: Mapping[str, Any]) -> set[str]:
    """Return the settings whose chosen value is the lowest or the highest of its grid."""
    return {
        name
        for name, values in tuning["grid"].items()
        if tuning["chosen"][name] in (min(values), max(values))
    }


def costs(summary: ComparisonSummary) -> Table:
    """Compare what the strategies cost."""
    measures = {
        "bytes a task": ("bytes_per_task", 0),
        "largest task": ("most_bytes", 0),
        "rows differentiated": ("forward_backward", 0),
        "rows answered": ("forward", 0),
        "passes a text": ("passes_per_row", 1),
        "seconds": ("seconds", 1),
    }
    columns = [
        _column(
            summary, title, lambda row, name=name: getattr(row, name),
            lower=True, scale=1, digits=digits,
        )
        for title, (name, digits) in measures.items()
    ]  # fmt: skip
    made = [(column.title, column.cells()) for column in columns]
    return _table("What each strategy cost to learn the stream, and what it stores", summary, made)


def strategies(summary: ComparisonSummary) -> Table:
    """Say what each strategy is: its family, its source, what it trains and what it adds."""
    rows = []
    for name, strategy in summary.strategies.items():
        row = STRATEGIES.get(find_method_name(name))
        said = (
            (row.family, _TRAINS.get(row.trains, row.trains), row.adds.replace("`", ""), row.source)
            if row
            else ("–",) * 4
        )
        settings = ", ".join(f"{key} {value}" for key, value in strategy.settings.items())
        rows.append(make_row(name, *said, settings or "–"))
    head = ("strategy", "family", "its loop trains", "a task adds", "source", "its own settings")
    return Table("What the strategies are", head, tuple(rows))


def _measures(summary: ComparisonSummary) -> list[MeasureColumn]:
    """Return averages, and of one metric transfers and forgetting; `by_metric` has several."""
    columns = average_columns(summary)
    if has_one_metric(summary.metrics):
        columns += [column for name in MEASURES[1:] for column in measure_columns(summary, name)]
    return columns


def _drop_empty(columns: Iterable[MeasureColumn]) -> list[MeasureColumn]:
    """Leave out the columns in which no strategy has a value."""
    return [c for c in columns if any(s.mean is not None for s in c.spreads.values())]


def _column(
    summary: ComparisonSummary,
    title: str,
    value: Callable[[StrategySummary], Spread],
    *,
    lower: bool = False,
    scale: float = 100,
    digits: int = 1,
) -> MeasureColumn:
    spreads = {name: value(row) for name, row in summary.strategies.items()}
    return MeasureColumn(title, spreads, lower, scale, digits)


def _table(
    caption: str, summary: ComparisonSummary, columns: Sequence[tuple[str, list[Cell]]]
) -> Table:
    rows = tuple(
        (Cell(name), *cells)
        for name, *cells in zip(summary.strategies, *(column for _, column in columns), strict=True)
    )
    return Table(caption, ("strategy", *(title for title, _ in columns)), rows)


def _difference(test: Difference | None) -> Cell:
    if test is None:
        return Cell("–")
    middle = 100 * test.difference
    if test.interval is None:
        return Cell(f"{middle:z.1f}", test.difference)
    low, high = (100 * end for end in test.interval)
    return Cell(f"{middle:z.1f} [{low:z.1f}, {high:z.1f}]", test.difference)


def _sure(test: Difference | None) -> Cell:
    if test is None or test.p_holm is None:
        return Cell("–")
    said = "differs" if test.p_holm < 0.05 else "not told apart"
    return Cell(f"{test.p_holm:.2g}, {said}", test.p_holm)


def _values(values: Mapping[str, Any], *, marked: Collection[str] = ()) -> str:
    return ", ".join(f"{name} {value}{'*' * (name in marked)}" for name, value in values.items())
