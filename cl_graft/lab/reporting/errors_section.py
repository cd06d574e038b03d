"""Errors of each task in a report: confusions, scores of each label, wrong rows and numbers.

The texts of wrong rows are rows of the data, so a page has them only where it was asked for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from cl_graft.errors import InputError
from cl_graft.kinds.rows import Row
from cl_graft.lab.reporting.numbers_section import largest_errors, number_table, numbers_text
from cl_graft.lab.reporting.report_data import ReportData
from cl_graft.lab.reporting.tables import Cell, Table
from cl_graft.lab.results.answered_numbers import TaskNumbers
from cl_graft.lab.results.formatting import points, row_text
from cl_graft.lab.results.stored_runs import StoredRun
from cl_graft.lab.results.task_errors import (
    TaskErrors,
    confused_pairs,
    count_by_pair,
    count_wrong,
    score_classes,
)

__all__ = ["ErrorDetails", "ReadRows", "error_details", "error_tables", "errors_text"]

ReadRows = Callable[[StoredRun], Mapping[str, Sequence[Row]]]
"""Reads the test rows of a run's tasks again, by task; raises `InputError` if they are gone."""

_MOST_LABELS = 12
"""Labels up to which a task has a matrix of confusions; of more, the most confused pairs."""

_PAIRS = 15
"""Most confused pairs of a task."""

_MOST_ROWS = 2000
"""Rows of tables on a page."""


@dataclass(frozen=True)
class ErrorDetails:
    """The errors of one strategy.

    Attributes:
        strategy: Name of the strategy.
        tables: Tables with the names of their files.
    """

    strategy: str
    tables: tuple[tuple[str, Table], ...]


def errors_text(data: ReportData, shown: Sequence[ErrorDetails]) -> tuple[str, ...]:
    """Return the paragraphs before the tables."""
    text = (
        "Wrong answers to the test rows of each task of classification, wrong spans of each "
        "tagging task and wrong labels of each multi-label task, in the first run of each "
        "strategy, on the day the task was learned and after the last task."
    )
    made = [text] if data.errors else []
    made += [numbers_text(data)] if data.numbers else []
    if len(shown) < len(_strategies(data)):
        files = [f"{name}.json" for name in ("errors", "numbers") if getattr(data, name)]
        made.append(
            f"In detail are the first {len(shown)} strategies; {' and '.join(files)} of a run hold "
            "those of the others."
        )
    return tuple(made)


def error_tables(data: ReportData) -> tuple[tuple[str, Table], ...]:
    """Return the tables of all strategies, with the names of their files."""
    made = [("errors", _error_table(data))] if data.errors else []
    made += [("numbers", number_table(data))] if data.numbers else []
    return tuple(made)


def _error_table(data: ReportData) -> Table:
    """Count wrong rows of each strategy and task, and name what is confused most."""
    rows = [
        _summary_row(strategy, task, found)
        for strategy, tasks in data.errors.items()
        for task, found in tasks.items()
    ]
    head = ("strategy", "task", "wrong when learned", "wrong at the end", "of")
    return Table(
        "Wrong rows, spans and labels of each task",
        (*head, "most confused at the end", "lowest F1 at the end"),
        tuple(rows),
    )


def error_details(
    data: ReportData, read_rows: ReadRows | None
) -> tuple[tuple[ErrorDetails, ...], str]:
    """Return the tables of each strategy, and why there are no texts where they were asked for.

    Args:
        data: Data of the report.
        read_rows: Reads the rows whose texts are shown; None shows none.
    """
    made: list[ErrorDetails] = []
    reason, size = "", 0
    for place, strategy in enumerate(_strategies(data), start=1):
        rows: Mapping[str, Sequence[Row]] = {}
        if read_rows is not None and not reason:
            try:
                rows = read_rows(next(r for r in data.runs if r.result.strategy == strategy))
            except InputError as error:
                reason = f"The wrong rows are not shown: {error}"
        own = (
            *_tables(place, strategy, data.errors.get(strategy, {}), rows),
            *_number_tables(place, strategy, data.numbers.get(strategy, {}), rows),
        )
        size += sum(len(table.rows) for _, table in own)
        if made and size > _MOST_ROWS:
            break
        made.append(ErrorDetails(strategy, own))
    return tuple(made), reason


def _strategies(data: ReportData) -> list[str]:
    """Return the strategies whose first run keeps errors or numbers."""
    return [name for name in data.strategies if name in data.errors or name in data.numbers]


def _summary_row(strategy: str, task: str, found: TaskErrors) -> tuple[Cell, ...]:
    rows = sum(rows for *_, rows in found.end)
    wrong = count_wrong(found.end)
    learned = "–"
    if found.learned is not None:
        then = sum(rows for *_, rows in found.learned)
        learned = f"{count_wrong(found.learned):,}"
        learned += "" if then == rows else f" of {then:,}"  # spans that are not there come and go
    confused = "–"
    if wrong:
        right, answer, _, count = confused_pairs(found)[0]
        confused = f"{found.name(right)} as {found.name(answer)}: {count}"
    scores = score_classes(found.end, classes=found.classes)
    known = [(one.f1, place) for place, one in enumerate(scores) if one.rows and one.f1 is not None]
    worst, place = min(known, default=(None, 0))
    return (
        Cell(strategy),
        Cell(task),
        Cell(learned, None if found.learned is None else count_wrong(found.learned)),
        Cell(f"{wrong:,}", wrong),
        Cell(f"{rows:,} {found.counted}", rows),
        Cell(confused),
        Cell("–" if worst is None else f"{found.name(place)}: {points(worst)}", worst),
    )


def _tables(
    place: int,
    strategy: str,
    tasks: Mapping[str, TaskErrors],
    rows: Mapping[str, Sequence[Row]],
) -> Iterator[tuple[str, Table]]:
    for number, (task, found) in enumerate(tasks.items(), start=1):
        few = len(found.labels) <= _MOST_LABELS
        yield f"confusions-{place}-{number}", (_matrix if few else _pairs)(strategy, task, found)
        own = rows.get(task) or rows.get(task.removesuffix(" (intents)"))
        if own and found.wrong:
            yield f"wrong-{place}-{number}", _texts(strategy, task, found, own)
    if tasks:
        yield f"labels-{place}", _labels(strategy, tasks)


def _number_tables(
    place: int,
    strategy: str,
    tasks: Mapping[str, TaskNumbers],
    rows: Mapping[str, Sequence[Row]],
) -> Iterator[tuple[str, Table]]:
    for number, (task, found) in enumerate(tasks.items(), start=1):
        yield (
            f"largest-errors-{place}-{number}",
            largest_errors(strategy, task, found, rows.get(task)),
        )


def _matrix(strategy: str, task: str, found: TaskErrors) -> Table:
    """Count the rows of each label by the answer they got, when learned and at the end."""
    end = count_by_pair(found.end)
    learned = end if found.learned is None else count_by_pair(found.learned)
    size = len(found.labels)
    others = any(answer >= size for _, answer in (*end, *learned))
    columns = range(size + others)
    totals = [sum(end.get((right, answer), 0) for answer in columns) for right in range(size)]

    def cell(right: int, answer: int) -> Cell:
        now, then = end.get((right, answer), 0), learned.get((right, answer), 0)
        text = f"{now:,}" if now == then else f"{then:,} → {now:,}"
        return Cell(text, now, share=now / totals[right] if totals[right] else None)

    rows = tuple(
        (Cell(found.name(right)), *(cell(right, answer) for answer in columns))
        for right in range(size)
        if totals[right] or any(own == right for own, _ in learned)
    )
    caption = f"{task}, {strategy}: test {found.counted} by label (rows) and answer (columns)"
    if learned != end:
        caption += "; with an arrow, when the task was learned → at the end"
    head = ("label", *map(found.name, columns))
    return Table(caption, head, rows, sortable=False, strategy=strategy)


def _pairs(strategy: str, task: str, found: TaskErrors) -> Table:
    """Count the rows of the labels that are confused most."""
    rows = tuple(
        (
            Cell(found.name(right)),
            Cell(found.name(answer)),
            Cell("–") if then is None else Cell(f"{then:,}", then),
            Cell(f"{now:,}", now),
        )
        for right, answer, then, now in confused_pairs(found)[:_PAIRS]
    )
    caption = f"{task}, {strategy}: the labels that are confused most, of {len(found.labels)}"
    head = ("label", "answer", f"{found.counted} when learned", f"{found.counted} at the end")
    return Table(caption, head, rows, strategy=strategy)


def _labels(strategy: str, tasks: Mapping[str, TaskErrors]) -> Table:
    """Score each label of each task."""
    rows: list[tuple[Cell, ...]] = []
    for task, found in tasks.items():
        size, learned = found.classes, found.learned
        now = score_classes(found.end, classes=size)
        then = None if learned is None else score_classes(learned, classes=size)
        for place, own in enumerate(now):
            if own.rows:
                before = None if then is None else then[place].f1
                rows.append(
                    (
                        Cell(found.name(place)),
                        Cell(task),
                        Cell(f"{own.rows:,} {found.counted}", own.rows),
                        *map(_points, (own.precision, own.recall, own.f1, before)),
                    )
                )
    head = ("label", "task", "test rows or spans", "precision", "recall", "F1", "F1 when learned")
    caption = f"{strategy}: precision, recall and F1 of each label at the end, in %"
    return Table(caption, head, tuple(rows), strategy=strategy)


def _texts(strategy: str, task: str, found: TaskErrors, rows: Sequence[Row]) -> Table:
    """Show the wrong rows that the model is surest of."""
    shown = tuple(
        (
            Cell(row_text(rows[one.row])),
            Cell(found.name(one.right)),
            Cell(found.name(one.answer)),
            Cell(points(one.confidence), one.confidence),
        )
        for one in found.wrong
        if one.row < len(rows)
    )
    caption = f"{task}, {strategy}: wrong rows at the end that the model is surest of"
    head = ("text", "label", "answer", "confidence (%)")
    return Table(caption, head, shown, sortable=False, strategy=strategy)


def _points(value: float | None) -> Cell:
    return Cell(points(value), value)
