"""Tables of a report, for the page, for LaTeX and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from cl_graft.data.streams import PublishedResult
from cl_graft.lab.reporting.measure_columns import (
    average_columns,
    has_several_metrics,
    measure_columns,
    metric_rows,
    other_columns,
)
from cl_graft.lab.reporting.report_data import ReportData
from cl_graft.lab.reporting.stream_section import PUBLISHED_COLUMNS, published_rows
from cl_graft.lab.results.comparison import StrategySummary
from cl_graft.lab.results.formatting import latex_table, points
from cl_graft.lab.results.run_results import RunResult, find_method_name
from cl_graft.lab.results.strategy_statistics import Difference, Spread
from cl_graft.runtime.escaping import for_csv, for_latex, for_terminal
from cl_graft.strategies.registry import STRATEGIES

__all__ = [
    "Cell",
    "Table",
    "as_csv",
    "by_metric",
    "comparison",
    "costs",
    "count_same_bits",
    "latex",
    "matrix",
    "other_metrics",
    "show_published",
    "strategies",
    "write_interval",
]

_MOST_TASKS = 12
"""Tasks that have a column of their own in the comparison."""
_SYMBOLS = str.maketrans({"±": "$\\pm$", "–": "--", "−": "$-$", "γ": "$\\gamma$"})


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes:
        text: Text of the cell.
        value: Number that it is sorted by; None comes last.
        best: Whether it is the best of its column.
        share: How dark the cell is shaded, in [0, 1]; None leaves it as the page.
    """

    text: str
    value: float | None = None
    best: bool = False
    share: float | None = None


@dataclass(frozen=True)
class Table:
    """A table; the first cell of a row names it.

    Rows of a table whose first column is ``"strategy"`` are shown and hidden with that strategy.

    Attributes:
        caption: Sentence on what the table shows.
        head: Names of the columns.
        rows: Cells, row by row.
        sortable: Whether its rows may change places.
        strategy: The strategy that it is of alone, if it is of one.
    """

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    sortable: bool = True
    strategy: str = ""

    @property
    def text_columns(self) -> list[int]:
        """The places of the columns that hold words: no cell of them has a number."""
        columns = enumerate(zip(*self.rows, strict=True))
        return [place for place, cells in columns if all(cell.value is None for cell in cells)]


def comparison(data: ReportData) -> Table:
    """Compare the strategies: mean ± half the 95 % interval, the best of a column marked."""
    summary = data.summary
    rows = summary.strategies
    tasks = summary.tasks if len(summary.tasks) <= _MOST_TASKS else []
    against = {test.strategy: test for test in summary.differences}
    reference = summary.differences[0].reference if against else ""
    averages = average_columns(summary)
    measures = [*averages]
    if not has_several_metrics(summary):  # those of several are in `by_metric`
        measures += measure_columns(summary, "backward_transfer")
        measures += measure_columns(summary, "forgetting")
    columns: list[tuple[str, list[Cell]]] = [
        (
            one.title,
            _column([*one.spreads.values()], best=min if one.lower_is_better else max),
        )
        for one in measures
    ]
    columns.append(("ECE", _column(_spreads(rows, "ece"), best=min)))
    for name, key in (("forward transfer", "forward_transfer"), ("sent right", "routing_accuracy")):
        spreads = _spreads(rows, key)
        if any(spread.mean is not None for spread in spreads):
            columns.append((name, _column(spreads, best=max)))
    if against:
        columns.append((f"{reference} is better by", [_difference(against.get(n)) for n in rows]))
        columns.append(("p", [_sure(against.get(n)) for n in rows]))
    columns.append(("same bits at the end", [_count_kept(data.results(name)) for name in rows]))
    for task in tasks:
        columns.append((task, _column([row.final[task] for row in rows.values()], best=max)))
    caption = "Scores at the end, in points"
    if any(spread.interval for one in averages for spread in one.spreads.values()):
        caption += ": mean ± half the 95 % interval over seeds"
    if against:
        caption += "; p of a paired t-test over seeds, corrected after Holm"
        if has_several_metrics(summary):
            caption += ", on the normalized average"
    return _table(caption, "strategy", list(rows), columns)


def by_metric(data: ReportData) -> Table:
    """Show transfer and forgetting of each metric, the best of a metric marked."""
    summary = data.summary
    names = list(summary.strategies)
    rows: list[list[tuple[Cell, ...]]] = [[] for _ in names]
    head: tuple[str, ...] = ()
    for metric, measures in metric_rows(summary):
        head = ("strategy", "metric", *measures)
        columns = [
            _column(own, best=min if title == "forgetting" else max)
            for title, own in measures.items()
        ]
        for place, name in enumerate(names):
            rows[place].append((Cell(name), Cell(metric), *(own[place] for own in columns)))
    return Table(
        "Transfer and forgetting at the end, in points, over the tasks of one metric each",
        head,
        tuple(row for own in rows for row in own),
    )


def other_metrics(data: ReportData) -> Table:
    """Compare the strategies by metrics that are not the tasks' own, the best of each marked."""
    columns = [
        (one.title, _column([*one.spreads.values()], best=max))
        for one in other_columns(data.summary)
    ]
    caption = "Scores at the end by other metrics, in points, the mean over the tasks that have one"
    return _table(caption, "strategy", list(data.summary.strategies), columns)


def costs(data: ReportData) -> Table:
    """Compare what the strategies cost."""
    rows = data.summary.strategies
    measures = {
        "bytes a task": ("bytes_per_task", 0),
        "largest task": ("most_bytes", 0),
        "rows differentiated": ("forward_backward", 0),
        "rows answered": ("forward", 0),
        "passes a text": ("passes_per_row", 1),
        "seconds": ("seconds", 1),
    }
    columns = [
        (title, _column(_spreads(rows, measure), best=min, scale=1, digits=digits))
        for title, (measure, digits) in measures.items()
    ]
    caption = "What each strategy cost to learn the stream, and what it stores"
    return _table(caption, "strategy", list(rows), columns)


def matrix(
    cells: Sequence[Sequence[float | None]],
    names: Sequence[str],
    *,
    caption: str,
    corner: str,
    strategy: str = "",
) -> Table:
    """Write a matrix of fractions in points, a row and a column a name, the largest darkest."""
    rows = tuple(
        (Cell(name), *(Cell(points(value), value, share=value and max(0, value)) for value in row))
        for name, row in zip(names, cells, strict=False)
    )
    return Table(caption, (corner, *names), rows, sortable=False, strategy=strategy)


def show_published(results: Sequence[PublishedResult]) -> Table:
    """Show what others published on the stream, as they report it."""
    rows = tuple(tuple(map(Cell, row)) for row in published_rows(results))
    caption = "Published by others, with other models: no result of these runs"
    return Table(caption, PUBLISHED_COLUMNS, rows, sortable=False)


_TRAINS = {
    "per_task": "parameters of each task",
    "nothing": "nothing: it answers with the dense run",
}


def strategies(data: ReportData) -> Table:
    """Say what each strategy is: its family, its source, what it trains and what it adds."""
    rows = []
    for name in data.strategies:
        first = data.results(name)[0]
        row = STRATEGIES.get(find_method_name(name))
        own = ", ".join(f"{key} {value}" for key, value in first.settings.items())
        chosen = first.tuning.get("chosen", {})
        tuned = ", ".join(f"{key} {value}" for key, value in chosen.items())
        said = (
            (row.family, _TRAINS.get(row.trains, row.trains), row.adds.replace("`", ""), row.source)
            if row
            else ("–",) * 4
        )
        rows.append(tuple(map(Cell, (name, *said, own or "–", tuned or "–"))))
    head = ("strategy", "family", "its loop trains", "a task adds", "source", "its own settings")
    return Table("What the strategies are", (*head, "tuned on dev"), tuple(rows))


def as_csv(table: Table) -> str:
    """Write a table as CSV, with the words that the page shows."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    rows = [table.head, *([cell.text for cell in row] for row in table.rows)]
    writer.writerows([for_csv(for_terminal(said)) for said in row] for row in rows)
    return text.getvalue()


def latex(table: Table) -> str:
    """Write a table for LaTeX with booktabs, best values bold; names stay what they are."""
    rows = [
        [
            rf"\textbf{{{_latex_text(cell.text)}}}" if cell.best else _latex_text(cell.text)
            for cell in row
        ]
        for row in table.rows
    ]
    return f"% {for_latex(table.caption)}\n{latex_table([*map(_latex_text, table.head)], rows)}"


def write_interval(spread: Spread, *, scale: float, digits: int) -> str:
    """Write a mean ± half its 95 % interval, where there is one; a dash without a mean."""
    if spread.mean is None:
        return "–"
    text = f"{scale * spread.mean:z,.{digits}f}"
    if not spread.interval:
        return text
    low, high = spread.interval
    return f"{text} ± {scale * (high - low) / 2:,.{digits}f}"


def count_same_bits(results: Sequence[RunResult]) -> tuple[int, int]:
    """Count the tasks whose logits at the end are those of the day they were learned.

    Returns:
        Their number over all runs, and that of all tasks.
    """
    pairs = [hashes for result in results for hashes in result.logit_hashes.values()]
    return sum(hashes["learned"] == hashes["end"] for hashes in pairs), len(pairs)


def _latex_text(text: str) -> str:
    return for_latex(text).translate(_SYMBOLS)


def _table(
    caption: str, corner: str, names: Sequence[str], columns: Sequence[tuple[str, list[Cell]]]
) -> Table:
    rows = tuple(
        (Cell(name), *(cells[place] for _, cells in columns)) for place, name in enumerate(names)
    )
    return Table(caption, (corner, *(name for name, _ in columns)), rows)


def _spreads(rows: Mapping[str, StrategySummary], measure: str) -> list[Spread]:
    return [getattr(row, measure) for row in rows.values()]


def _column(
    spreads: Sequence[Spread],
    *,
    best: Callable[[Iterable[float]], float],
    scale: float = 100,
    digits: int = 1,
) -> list[Cell]:
    known = [spread.mean for spread in spreads if spread.mean is not None]
    top = best(known) if len(set(known)) > 1 else None
    return [
        Cell(
            write_interval(spread, scale=scale, digits=digits),
            spread.mean,
            best=top is not None and spread.mean == top,
        )
        for spread in spreads
    ]


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


def _count_kept(results: Sequence[RunResult]) -> Cell:
    same, count = count_same_bits(results)
    return Cell(f"{same} of {count}", same / count if count else None)
