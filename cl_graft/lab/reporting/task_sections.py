"""Sections of a report on each task: how it was learned, its errors, and its answers in words.

All is of the first run of each strategy. Texts of rows may be private, so a page has them only
where it was asked for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from cl_graft.errors import InputError
from cl_graft.kinds.rows import Row
from cl_graft.lab.figures import MOST_PANELS
from cl_graft.lab.reporting.pictures import MOST_STRATEGIES, Picture
from cl_graft.lab.reporting.report_data import ReportData
from cl_graft.lab.reporting.summary_sections import Section
from cl_graft.lab.reporting.task_figures import learning_curves, number_panels
from cl_graft.lab.results.stored_runs import StoredRun
from cl_graft.lab.results.tables import (
    Cell,
    Table,
    make_count,
    make_points,
    make_row,
    points,
    row_text,
    shorten,
)
from cl_graft.lab.results.task_files import (
    NumberScores,
    TaskAnswers,
    TaskCurves,
    TaskErrors,
    TaskNumbers,
    confused_pairs,
    count_by_pair,
    count_wrong,
    score_classes,
)

ReadRows = Callable[[StoredRun], Mapping[str, Sequence[Row]]]
"""Reads the test rows of a run's tasks again, by task; raises `InputError` if they are gone."""

_MOST_LABELS = 12
"""Labels up to which a task has a matrix of confusions; of more, the most confused pairs."""
_PAIRS = 15
"""Most confused pairs of a task."""
_MOST_ROWS = 2000
"""Rows of tables of errors on a page."""
_LARGEST_ERRORS = 10
"""Rows with the largest errors of a regression task."""
_MOST_POINTS = 10_000
"""Points of all scatter plots of a page, after which further strategies have none."""
_MOST_ANSWERS = 24
"""Tables of answers in words on a page."""
_MOST_CURVES = 200
"""Curves of learning on a page, one a strategy and task."""


def learning(data: ReportData) -> Section | None:
    """Show loss and dev score over steps, a figure a task."""
    count = min(MOST_PANELS, max(1, _MOST_CURVES // max(1, len(data.curves))))
    pictures: list[Picture] = []
    for number, task in enumerate(data.summary.tasks[:count], start=1):
        curves = {name: tasks[task] for name, tasks in data.curves.items() if task in tasks}
        if not curves:
            continue
        title = f"{task}: training loss and score on dev while it is learned"
        figure = learning_curves(curves, title=task, measure=data.summary.metrics[task])
        pictures.append(
            Picture(f"learning-{number}", title, figure, _summarize_learning(curves, title))
        )
    text = (
        "Training loss and score on dev while each task was learned, in the first run of each "
        "strategy. Thin and dotted is the dense run in which grafting finds its region; the "
        "training of the region begins after it, at the grey line. "
        "Of long trainings the loss is a mean over stretches of steps."
    )
    if count < len(data.summary.tasks):
        text += f" Shown are the first {count} tasks; curves.json of a run holds the others."
    shown = tuple(pictures)
    return Section("learning", "Learning each task", (text,), pictures=shown) if shown else None


def _summarize_learning(curves: Mapping[str, TaskCurves], title: str) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for name, task_curves in curves.items():
        train = task_curves.train
        losses = [train.loss[end][1] for end in (0, -1)] if train.loss else [None] * 2
        step, best = max(train.dev, key=lambda point: (point[1], point[0]), default=(None,) * 2)
        cells = (Cell("–" if loss is None else f"{loss:.4g}", loss) for loss in losses)
        rows.append(make_row(name, *cells, make_points(best), make_count(step)))
    head = (
        "strategy",
        "loss at the beginning",
        "loss at the end",
        "best dev score",
        "at step of it",
    )
    return Table(title, head, tuple(rows))


def errors(data: ReportData, *, read_rows: ReadRows | None) -> Section | None:
    """Show confusions, scores of labels, wrong rows where there are texts, and wrong numbers."""
    if not data.errors and not data.numbers:
        return None
    details, reason = _details(data, read_rows)
    text: list[str] = []
    tables: list[tuple[str, Table]] = []
    if data.errors:
        text.append(
            "Wrong answers to the test rows of each task of classification, wrong spans of each "
            "tagging task and wrong labels of each multi-label task, in the first run of each "
            "strategy, on the day the task was learned and after the last task."
        )
        tables.append(("errors", _count_errors(data)))
    if data.numbers:
        text.append(
            "Of a regression, the figures show the right number and the answer at the end of some "
            "test rows, those with the largest errors among them; a dot on the dashed line is a "
            "right answer. Correlations and the mean error are over all test rows."
        )
        tables.append(("numbers", number_table(data)))
    if len(details) < len(_strategies(data)):
        text.append(
            f"In detail are the first {len(details)} strategies; errors.json and numbers.json of a "
            "run hold those of the others."
        )
    if read_rows is None:
        text.append("cl-graft report --with-text shows some of the rows.")
    return Section(
        "errors",
        "Errors of each task",
        tuple(text),
        tuple(tables),
        tuple(draw_numbers(data)),
        lines=(reason,) if reason else (),
        details=details,
    )


def _details(
    data: ReportData, read_rows: ReadRows | None
) -> tuple[tuple[tuple[str, tuple[tuple[str, Table], ...]], ...], str]:
    """Return the tables of each strategy, and why there are no texts where they were asked for."""
    made: list[tuple[str, tuple[tuple[str, Table], ...]]] = []
    reason, size = "", 0
    for number, strategy in enumerate(_strategies(data), start=1):
        rows: Mapping[str, Sequence[Row]] = {}
        if read_rows is not None and not reason:
            try:
                rows = read_rows(next(r for r in data.runs if r.result.strategy == strategy))
            except InputError as error:
                reason = f"The wrong rows are not shown: {error}"
        tables = tuple(_tables(number, strategy, data, rows))
        size += sum(len(table.rows) for _, table in tables)
        if made and size > _MOST_ROWS:
            break
        made.append((strategy, tables))
    return tuple(made), reason


def _strategies(data: ReportData) -> list[str]:
    """Return the strategies whose first run keeps errors or numbers."""
    return [name for name in data.strategies if name in data.errors or name in data.numbers]


def _tables(
    number: int, strategy: str, data: ReportData, rows: Mapping[str, Sequence[Row]]
) -> Iterator[tuple[str, Table]]:
    tasks = data.errors.get(strategy, {})
    for at, (task, task_errors) in enumerate(tasks.items(), start=1):
        show = _matrix if len(task_errors.labels) <= _MOST_LABELS else _pairs
        yield f"confusions-{number}-{at}", show(strategy, task, task_errors)
        texts = rows.get(task) or rows.get(task.removesuffix(" (intents)"))
        if texts and task_errors.wrong:
            yield f"wrong-{number}-{at}", _wrong_rows(strategy, task, task_errors, texts)
    if tasks:
        yield f"labels-{number}", _labels(strategy, tasks)
    for at, (task, numbers) in enumerate(data.numbers.get(strategy, {}).items(), start=1):
        table = largest_errors(strategy, task, numbers, rows.get(task))
        yield f"largest-errors-{number}-{at}", table


def _count_errors(data: ReportData) -> Table:
    """Count wrong rows of each strategy and task, and name what is confused most."""
    rows = tuple(
        _count_row(strategy, task, task_errors)
        for strategy, tasks in data.errors.items()
        for task, task_errors in tasks.items()
    )
    head = ("strategy", "task", "wrong when learned", "wrong at the end", "of")
    head = (*head, "most confused at the end", "lowest F1 at the end")
    return Table("Wrong rows, spans and labels of each task", head, rows)


def _count_row(strategy: str, task: str, task_errors: TaskErrors) -> tuple[Cell, ...]:
    rows = sum(rows for *_, rows in task_errors.end)
    wrong = count_wrong(task_errors.end)
    learned = "–"
    if task_errors.learned is not None:
        then = sum(rows for *_, rows in task_errors.learned)
        learned = f"{count_wrong(task_errors.learned):,}"
        learned += "" if then == rows else f" of {then:,}"  # spans that are not there come and go
    confused = "–"
    if wrong:
        right, answer, _, count = confused_pairs(task_errors)[0]
        confused = f"{task_errors.name(right)} as {task_errors.name(answer)}: {count}"
    scores = score_classes(task_errors.end, classes=task_errors.classes)
    known = [(s.f1, label) for label, s in enumerate(scores) if s.rows and s.f1 is not None]
    worst, label = min(known, default=(None, 0))
    return make_row(
        strategy,
        task,
        Cell(learned, None if task_errors.learned is None else count_wrong(task_errors.learned)),
        make_count(wrong),
        Cell(f"{rows:,} {task_errors.counted}", rows),
        confused,
        Cell("–" if worst is None else f"{task_errors.name(label)}: {points(worst)}", worst),
    )


def _matrix(strategy: str, task: str, task_errors: TaskErrors) -> Table:
    """Count the rows of each label by the answer they got, when learned and at the end."""
    end = count_by_pair(task_errors.end)
    learned = end if task_errors.learned is None else count_by_pair(task_errors.learned)
    size = len(task_errors.labels)
    others = any(answer >= size for _, answer in (*end, *learned))
    columns = range(size + others)
    totals = [sum(end.get((right, answer), 0) for answer in columns) for right in range(size)]

    def cell(right: int, answer: int) -> Cell:
        now, then = end.get((right, answer), 0), learned.get((right, answer), 0)
        text = f"{now:,}" if now == then else f"{then:,} → {now:,}"
        return Cell(text, now, share=now / totals[right] if totals[right] else None)

    rows = tuple(
        (Cell(task_errors.name(right)), *(cell(right, answer) for answer in columns))
        for right in range(size)
        if totals[right] or any(pair[0] == right for pair in learned)
    )
    caption = f"{task}, {strategy}: test {task_errors.counted} by label (rows) and answer (columns)"
    if learned != end:
        caption += "; with an arrow, when the task was learned → at the end"
    head = ("label", *map(task_errors.name, columns))
    return Table(caption, head, rows, sortable=False, strategy=strategy)


def _pairs(strategy: str, task: str, task_errors: TaskErrors) -> Table:
    rows = tuple(
        make_row(
            task_errors.name(right), task_errors.name(answer), make_count(then), make_count(now)
        )
        for right, answer, then, now in confused_pairs(task_errors)[:_PAIRS]
    )
    caption = f"{task}, {strategy}: the labels that are confused most, of {len(task_errors.labels)}"
    head = (
        "label",
        "answer",
        f"{task_errors.counted} when learned",
        f"{task_errors.counted} at the end",
    )
    return Table(caption, head, rows, strategy=strategy)


def _labels(strategy: str, tasks: Mapping[str, TaskErrors]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for task, task_errors in tasks.items():
        now = score_classes(task_errors.end, classes=task_errors.classes)
        then = score_classes(task_errors.learned or (), classes=task_errors.classes)
        for label, score in enumerate(now):
            if score.rows:
                count = Cell(f"{score.rows:,} {task_errors.counted}", score.rows)
                shares = (score.precision, score.recall, score.f1, then[label].f1)
                cells = map(make_points, shares)
                rows.append(make_row(task_errors.name(label), task, count, *cells))
    head = ("label", "task", "test rows or spans", "precision", "recall", "F1", "F1 when learned")
    caption = f"{strategy}: precision, recall and F1 of each label at the end, in %"
    return Table(caption, head, tuple(rows), strategy=strategy)


def _wrong_rows(strategy: str, task: str, task_errors: TaskErrors, rows: Sequence[Row]) -> Table:
    """Show the wrong rows that the model is surest of."""
    shown = tuple(
        make_row(
            row_text(rows[wrong.row]),
            task_errors.name(wrong.right),
            task_errors.name(wrong.answer),
            make_points(wrong.confidence),
        )
        for wrong in task_errors.wrong
        if wrong.row < len(rows)
    )
    caption = f"{task}, {strategy}: wrong rows at the end that the model is surest of"
    head = ("text", "label", "answer", "confidence (%)")
    return Table(caption, head, shown, sortable=False, strategy=strategy)


def number_table(data: ReportData) -> Table:
    """Write correlations and the mean error of each regression task."""

    def cells(scores: NumberScores | None) -> tuple[Cell, ...]:
        if scores is None:
            return (Cell("–"),) * 3
        two = map(make_points, (scores.pearson, scores.spearman))
        return (*two, Cell(f"{scores.error:.4g}", scores.error))

    rows = tuple(
        make_row(
            strategy, task, *cells(numbers.learned), *cells(numbers.end), make_count(numbers.rows)
        )
        for strategy, tasks in data.numbers.items()
        for task, numbers in tasks.items()
    )
    names = ("Pearson", "Spearman", "mean error")
    head = [f"{name} {when}" for when in ("when learned", "at the end") for name in names]
    caption = "Answers of regression tasks: correlations in points, mean size of the error"
    return Table(caption, ("strategy", "task", *head, "test rows"), rows)


def draw_numbers(data: ReportData) -> Iterator[Picture]:
    """Draw answers against right numbers, in the first run of each of the first strategies."""
    drawn = 0
    for strategy, tasks in list(data.numbers.items())[:MOST_STRATEGIES]:
        panels = dict(list(tasks.items())[:MOST_PANELS])
        drawn += sum(len(numbers.shown) for numbers in panels.values())
        if drawn > _MOST_POINTS:
            return
        figure = number_panels(panels, title=f"Numbers of {strategy}")
        title = f"{strategy}: answers at the end against the right numbers"
        yield Picture(f"numbers-{data.file_name(strategy)}", title, figure, strategy=strategy)


def largest_errors(
    strategy: str, task: str, numbers: TaskNumbers, rows: Sequence[Row] | None
) -> Table:
    """List the rows with the largest errors at the end, with their texts where there are rows."""
    shown: list[tuple[Cell, ...]] = []
    for wrong in numbers.largest_errors(_LARGEST_ERRORS):
        values = (wrong.right, wrong.answer, wrong.error)
        cells = (make_count(wrong.row), *(Cell(f"{v:z.4g}", v) for v in values))
        if rows is not None:
            cells += (Cell(row_text(rows[wrong.row]) if wrong.row < len(rows) else "–"),)
        shown.append(cells)
    head = ("row", "right number", "answer", "error", *(("text",) if rows is not None else ()))
    caption = f"{task}, {strategy}: test rows with the largest errors at the end, counted from 0"
    return Table(caption, head, tuple(shown), sortable=False, strategy=strategy)


def answers(data: ReportData, *, with_text: bool) -> Section | None:
    """Count the answers in words that are right and that changed, and show them if asked."""
    if not any(data.answers.values()):
        return None
    tables = [("answers", _count_answers(data))]
    text = (
        "Answers to the first test rows of each task that is answered with text, written or taken "
        "from a passage, in the first run of each strategy, on the day the task was learned and "
        "after the last task. An answer is right here if it is one of the right ones, letter for "
        "letter."
    )
    if with_text:
        tables += list(_show_answers(data))[:_MOST_ANSWERS]
        if sum(map(len, data.answers.values())) > _MOST_ANSWERS:
            text += f" Shown are the first {_MOST_ANSWERS} tables."
    else:
        text += " cl-graft report --with-text shows the texts."
    return Section("answers", "Answers in words", (text,), tuple(tables))


def _count_answers(data: ReportData) -> Table:
    def count(number: int | None, task_answers: TaskAnswers) -> Cell:
        return (
            Cell("–") if number is None else Cell(f"{number} of {len(task_answers.shown)}", number)
        )

    def row(task_answers: TaskAnswers) -> tuple[Cell, ...]:
        shown = task_answers.shown
        known = all(answer.learned is not None for answer in shown)
        then = sum(answer.learned in answer.right for answer in shown) if known else None
        changed = sum(answer.learned != answer.now for answer in shown) if known else None
        return (
            count(then, task_answers),
            count(sum(answer.is_right for answer in shown), task_answers),
            count(0 if task_answers.same else changed, task_answers),
            Cell(f"{'all' if task_answers.same else 'not all'} of {task_answers.rows}"),
        )

    rows = tuple(
        make_row(strategy, task, *row(task_answers))
        for strategy, tasks in data.answers.items()
        for task, task_answers in tasks.items()
    )
    head = ("strategy", "task", "right when learned", "right at the end", "changed since")
    return Table("Answers to the first test rows", (*head, "test rows with the same bits"), rows)


def _show_answers(data: ReportData) -> Iterator[tuple[str, Table]]:
    head = ("input", "right answers", "answer when learned", "at the end", "is it right?")
    for number, (strategy, tasks) in enumerate(data.answers.items(), start=1):
        for at, (task, task_answers) in enumerate(tasks.items(), start=1):
            rows = tuple(
                make_row(
                    answer.text,
                    " / ".join(map(shorten, answer.right)),
                    "–" if answer.learned is None else shorten(answer.learned),
                    "unchanged" if answer.learned == answer.now else shorten(answer.now),
                    "right" if answer.is_right else "wrong",
                )
                for answer in task_answers.shown
            )
            caption = f"{task}, answers of {strategy}"
            table = Table(caption, head, rows, sortable=False, strategy=strategy)
            yield f"answers-{number}-{at}", table
