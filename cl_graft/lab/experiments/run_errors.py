"""Right and wrong answers of a run, counted for each task after each, or the numbers answered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil
from typing import Any, cast

from torch import Tensor

from cl_graft.data.encoded_task import EncodedTask
from cl_graft.kinds.text_task import TextTask
from cl_graft.lab.results.answered_numbers import (
    MOST_NUMBERS,
    AnsweredNumber,
    NumberScores,
    TaskNumbers,
)
from cl_graft.lab.results.task_errors import Counts, TaskErrors, WrongRow
from cl_graft.metrics.span_scores import count_spans
from cl_graft.metrics.task_score import METRICS, score
from cl_graft.strategies.stream_scores import StreamScores

__all__ = ["collect_errors", "collect_numbers", "collect_other_scores"]

_ROWS = 10
"""Wrong rows of a task that are named."""


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
        if task.kind not in ("classification", "tagging", "multi_label"):
            continue
        outputs, targets = scores.predictions(number)
        if task.kind == "tagging":
            own = _count_tags(task, outputs, targets, tasks[number].rows)
        elif task.kind == "multi_label":
            own = _count_labels(task, outputs, targets)
        else:
            own = {task.name: _count_rows(task.label_names, outputs, targets, tasks[number].rows)}
        for name, errors in own.items():
            earlier = before[name].learned if name in before else None
            found[name] = replace(errors, learned=errors.end if learned == last else earlier)
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
        if task.kind != "regression":
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


def _count_rows(
    labels: tuple[str, ...], outputs: Tensor, targets: Tensor, rows: Mapping[str, Tensor]
) -> TaskErrors:
    confidence, answers = outputs.double().softmax(dim=1).max(dim=1)
    answers = answers.clamp(max=len(labels))  # all classes of other tasks count as one
    counts = Counter(zip(targets.tolist(), answers.tolist(), strict=True))
    wrong = _find_wrong(rows["test"], targets, answers, confidence)
    return TaskErrors(labels, None, _sort(counts), wrong)


def _count_tags(
    task: TextTask, outputs: Tensor, targets: Tensor, rows: Mapping[str, Tensor]
) -> dict[str, TaskErrors]:
    """Count the spans of a tagging task, and the rows by their intents."""
    tags = len(task.label_names)
    types = tuple(name.removeprefix("B-") for name in task.label_names[1::2])
    found: dict[str, TaskErrors] = {}
    if spans := count_spans(outputs[..., :tags], targets, types=len(types)):
        found[task.name] = TaskErrors((*types, "no span"), None, _sort(spans), counted="spans")
    if task.intent_names:
        found[f"{task.name} (intents)"] = _count_rows(
            task.intent_names, outputs[:, 0, tags:], targets[:, 0] - tags, rows
        )
    return found


def _count_labels(task: TextTask, outputs: Tensor, targets: Tensor) -> dict[str, TaskErrors]:
    """Count labels that are right, missed (answered "no label") and false (right is "no label")."""
    found, right = outputs[..., 1] > outputs[..., 0], targets == 1
    none = len(task.label_names)
    counts: Counter[tuple[int, int]] = Counter()
    for label in range(none):
        has, gets = right[:, label], found[:, label]
        counts[label, label] = int((has & gets).sum())
        counts[label, none] = int((has & ~gets).sum())
        counts[none, label] = int((~has & gets).sum())
    if not (counts := +counts):
        return {}
    names = (*task.label_names, "no label")
    return {task.name: TaskErrors(names, None, _sort(counts), counted="labels")}


def _sort(counts: Counter[tuple[int, int]]) -> Counts:
    return tuple((*pair, number) for pair, number in sorted(counts.items()))


def _find_wrong(
    rows: Tensor, targets: Tensor, answers: Tensor, confidence: Tensor
) -> tuple[WrongRow, ...]:
    """Return the wrong rows that the model is surest of."""
    places = (answers != targets).nonzero().flatten().tolist()
    places.sort(key=lambda place: (-float(confidence[place]), int(rows[place])))
    return tuple(
        WrongRow(
            int(rows[place]),
            int(targets[place]),
            int(answers[place]),
            round(float(confidence[place]), 4),
        )
        for place in places[:_ROWS]
    )
