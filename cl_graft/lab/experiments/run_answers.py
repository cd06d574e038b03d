"""Answers of a run to test rows, after every task: texts, right and wrong classes, numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any, cast

from torch import Tensor

from cl_graft.data.encoded_task import EncodedTask
from cl_graft.lab.results.formatting import shorten
from cl_graft.lab.results.task_errors import TaskErrors, WrongRow
from cl_graft.lab.results.task_files import (
    MOST_NUMBERS,
    AnsweredNumber,
    NumberScores,
    ShownAnswer,
    TaskAnswers,
    TaskNumbers,
)
from cl_graft.metrics.task_score import METRICS, score
from cl_graft.strategies.stream_scores import StreamScores

_ROWS = 10
"""Wrong rows of a task that are named, and rows whose text answers are shown."""


def collect_answers(
    tasks: Sequence[EncodedTask], scores: StreamScores, before: Mapping[str, TaskAnswers]
) -> dict[str, TaskAnswers]:
    """Return answers to some test rows of each task learned so far that is answered with text.

    Args:
        tasks: The tasks of the stream, in its order.
        scores: Predictions and hashes of their test rows.
        before: Answers that were returned after the previous task; those of earlier tasks, as they
            were when learned, are taken from it.
    """
    found: dict[str, TaskAnswers] = {}
    last = len(scores.order) - 1
    for learned, number in enumerate(scores.order):
        name, compare = tasks[number].task.name, getattr(tasks[number].scorer, "compare", None)
        if compare is None:
            continue
        outputs, targets = scores.predictions(number)
        rows = len(tasks[number].task.test)
        kept = before[name].shown if learned < last and name in before else ()
        shown: list[ShownAnswer] = []
        for place, (text, said, right) in enumerate(compare(outputs, targets, most=_ROWS)):
            first = kept[place].learned if place < len(kept) else None
            then = said if learned == last else first
            shown.append(ShownAnswer(shorten(text), tuple(right), learned=then, now=said))
        same = scores.logit_hash(last, learned) == scores.logit_hash(learned, learned)
        found[name] = TaskAnswers(rows, same, tuple(shown))
    return found


def collect_errors(
    tasks: Sequence[EncodedTask], scores: StreamScores, before: Mapping[str, TaskErrors]
) -> dict[str, TaskErrors]:
    """Return right and answered classes of each learned task of classes, tags or several labels.

    Args:
        tasks: The tasks of the stream, in its order.
        scores: Predictions of their test rows.
        before: Errors that were returned after the previous task; the counts of earlier tasks, as
            they were when learned, are taken from it.

    Returns:
        Errors by task; those of intents beside tags by the task's name with " (intents)" behind it.
    """
    found: dict[str, TaskErrors] = {}
    last = len(scores.order) - 1
    for learned, number in enumerate(scores.order):
        task = tasks[number].task
        outputs, targets = scores.predictions(number)
        rows = tasks[number].rows["test"]
        for own in task.own_kind.confusions(task, outputs, targets, rows):
            name = f"{task.name} ({own.part})" if own.part else task.name
            end = tuple((*pair, count) for pair, count in sorted(own.counts.items()))
            earlier = before[name].learned if name in before else None
            wrong = tuple(WrongRow(*row) for row in own.wrong)
            learned_as = end if learned == last else earlier
            found[name] = TaskErrors(own.labels, learned_as, end, wrong, own.counted)
    return found


def collect_numbers(
    tasks: Sequence[EncodedTask], scores: StreamScores, before: Mapping[str, TaskNumbers]
) -> dict[str, TaskNumbers]:
    """Return right and answered numbers of each regression task that is learned, by task.

    Args:
        tasks: The tasks of the stream, in its order.
        scores: Predictions of their test rows.
        before: Numbers that were returned after the previous task; the scores of earlier tasks, as
            they were when learned, are taken from it.
    """
    found: dict[str, TaskNumbers] = {}
    last = len(scores.order) - 1
    for learned, number in enumerate(scores.order):
        task = tasks[number].task
        if not task.own_kind.one_label or task.label_names:
            continue
        outputs, right = scores.predictions(number)
        end = _score_numbers(outputs, right)
        earlier = before[task.name].learned if task.name in before else None
        shown = _pick_numbers(tasks[number].rows["test"], right, outputs[:, 0])
        found[task.name] = TaskNumbers(len(right), end if learned == last else earlier, end, shown)
    return found


def collect_other_scores(
    tasks: Sequence[EncodedTask], scores: StreamScores
) -> dict[str, dict[str, float]]:
    """Return the score of each task that is learned by other metrics than its own.

    Args:
        tasks: The tasks of the stream, in its order.
        scores: Predictions of their test rows.

    Returns:
        Scores by task and metric.
    """
    found: dict[str, dict[str, float]] = {}
    for number in scores.order:
        task, scorer = tasks[number].task, cast(Any, tasks[number].scorer)
        own: dict[str, float] = {}
        for name in task.own_kind.reported_metrics(task):
            metric = METRICS.find(name)
            if name != task.metric and not metric.of_texts:
                own[name] = scores.score_by(number, name)
            elif name != task.metric and hasattr(scorer, "compare"):
                _, said, right = zip(*scorer.compare(*scores.predictions(number)), strict=True)
                own[name] = float(metric.compute(said, right))
        if own:
            found[task.name] = own
    return found


def _score_numbers(outputs: Tensor, right: Tensor) -> NumberScores:
    error = (outputs[:, 0].double() - right.double()).abs().mean()
    pearson, spearman = (score(outputs, right, metric) for metric in ("pearson", "spearman"))
    return NumberScores(pearson, spearman, float(error))


def _pick_numbers(rows: Tensor, right: Tensor, answers: Tensor) -> tuple[AnsweredNumber, ...]:
    """Return the numbers of rows at equal distances, and of those with the largest errors."""
    errors = (answers.double() - right.double()).abs()
    worst = errors.argsort(descending=True, stable=True)[:_ROWS].tolist()
    step = max(1, ceil(len(right) / (MOST_NUMBERS - _ROWS)))
    values = zip(rows.tolist(), right.tolist(), answers.tolist(), strict=True)
    picked = {*range(0, len(right), step), *worst}
    kept = (value for place, value in enumerate(values) if place in picked)
    return tuple(AnsweredNumber(*value) for value in sorted(kept))
