"""Counting right and wrong answers of a run on each task, after each task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from torch import Tensor

from cl_graft.data.encoded_task import EncodedTask
from cl_graft.results.task_errors import Counts, TaskErrors, WrongRow
from cl_graft.strategies.stream_scores import StreamScores

__all__ = ["collect_errors"]

_ROWS = 10
"""Wrong rows of a task that are named."""


def collect_errors(
    tasks: Sequence[EncodedTask], scores: StreamScores, before: Mapping[str, TaskErrors]
) -> dict[str, TaskErrors]:
    """Return right and answered classes of each task of classification that is learned.

    Args:
        tasks: The tasks of the stream, in its order.
        scores: Predictions of their test rows.
        before: What was returned after the task before, whence the counts of earlier days come.
    """
    found: dict[str, TaskErrors] = {}
    last = len(scores.order) - 1
    for learned, number in enumerate(scores.order):
        encoded = tasks[number]
        if encoded.task.kind != "classification":
            continue
        name, labels = encoded.task.name, encoded.task.label_names
        outputs, targets = scores.predictions(number)
        probabilities = outputs.double().softmax(dim=1)
        confidence, answers = probabilities.max(dim=1)
        answers = answers.clamp(max=len(labels))  # the classes of other tasks are one
        counts = _count(targets, answers)
        earlier = before[name].learned if name in before else None
        found[name] = TaskErrors(
            labels=labels,
            learned=counts if learned == last else earlier,
            end=counts,
            wrong=_find_wrong(encoded.rows["test"], targets, answers, confidence),
        )
    return found


def _count(targets: Tensor, answers: Tensor) -> Counts:
    pairs = Counter(zip(targets.tolist(), answers.tolist(), strict=True))
    return tuple((*pair, rows) for pair, rows in sorted(pairs.items()))


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
