"""Answers that are texts in a report: how many are right, and what changed since they were learned.

The texts themselves are rows of the data, so a page has them only where it was asked for them.
"""

from __future__ import annotations

from collections.abc import Iterator

from cl_graft.lab.reporting.report_data import ReportData
from cl_graft.lab.reporting.tables import Cell, Table
from cl_graft.lab.results.formatting import shorten
from cl_graft.lab.results.shown_answers import ShownAnswer, TaskAnswers

__all__ = ["answer_tables", "answers_text"]

_MOST_TABLES = 24
"""Tables of texts on a page."""


def answers_text(data: ReportData, *, with_text: bool) -> str:
    """Return the paragraph before the tables."""
    said = (
        "Answers to the first test rows of each task that is answered with text, written or taken "
        "from a passage, in the first run of each strategy, on the day the task was learned and "
        "after the last task. An answer is right here if it is one of the right ones, letter for "
        "letter."
    )
    if not with_text:
        return f"{said} cl-graft report --with-text shows the texts."
    count = sum(len(tasks) for tasks in data.answers.values())
    return said if count <= _MOST_TABLES else f"{said} Shown are the first {_MOST_TABLES} tables."


def answer_tables(data: ReportData, *, with_text: bool) -> tuple[tuple[str, Table], ...]:
    """Return the tables with the names of their files; none without such tasks."""
    if not any(data.answers.values()):
        return ()
    made = [("answers", _counts(data))]
    if with_text:
        made += list(_texts(data))[:_MOST_TABLES]
    return tuple(made)


def _counts(data: ReportData) -> Table:
    rows = [
        (
            Cell(strategy),
            Cell(task),
            _count(_right_then(found), len(found.shown)),
            _count(sum(one.is_right for one in found.shown), len(found.shown)),
            _count(_count_changed(found), len(found.shown)),
            Cell(f"{'all' if found.same else 'not all'} of {found.rows}"),
        )
        for strategy, tasks in data.answers.items()
        for task, found in tasks.items()
    ]
    head = ("strategy", "task", "right when learned", "right at the end", "changed since")
    return Table(
        "Answers to the first test rows",
        (*head, "test rows with the same bits"),
        tuple(rows),
    )


def _texts(data: ReportData) -> Iterator[tuple[str, Table]]:
    for place, (strategy, tasks) in enumerate(data.answers.items(), start=1):
        for number, (task, found) in enumerate(tasks.items(), start=1):
            rows = [
                (
                    Cell(one.text),
                    Cell(" / ".join(map(shorten, one.right))),
                    Cell("–" if one.learned is None else shorten(one.learned)),
                    Cell("unchanged" if one.learned == one.now else shorten(one.now)),
                    Cell("right" if one.is_right else "wrong"),
                )
                for one in found.shown
            ]
            head = ("input", "right answers", "answer when learned", "at the end", "is it right?")
            table = Table(
                f"{task}, answers of {strategy}",
                head,
                tuple(rows),
                sortable=False,
                strategy=strategy,
            )
            yield f"answers-{place}-{number}", table


def _right_then(found: TaskAnswers) -> int | None:
    known = [one for one in found.shown if one.learned is not None]
    return (
        sum(one.learned in one.right for one in known) if len(known) == len(found.shown) else None
    )


def _count_changed(found: TaskAnswers) -> int | None:
    def differs(one: ShownAnswer) -> bool:
        return one.learned != one.now

    if found.same:
        return 0
    known = all(one.learned is not None for one in found.shown)
    return sum(map(differs, found.shown)) if known else None


def _count(number: int | None, of: int) -> Cell:
    return Cell("–") if number is None else Cell(f"{number} of {of}", number)
