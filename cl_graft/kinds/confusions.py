"""Right and answered classes of test rows, or of the spans and labels in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

_MAX_WRONG_ROWS = 10


@dataclass(frozen=True)
class Confusions:
    """How often each class was answered where each was right.

    Attributes:
        labels: Names of the classes; a class after the last is one of another task. The last class
            of spans and of labels is that of one that is not there.
        counts: Number of cases by right and answered class; not empty.
        counted: What is counted.
        part: What of the task is counted, such as ``"intents"``; empty for all of it.
        wrong: Number of the row, right class, answered class and probability of the answer, of the
            wrong rows that the model is surest of.
    """

    labels: tuple[str, ...]
    counts: Mapping[tuple[int, int], int]
    counted: Literal["rows", "spans", "labels"] = "rows"
    part: str = ""
    wrong: tuple[tuple[int, int, int, float], ...] = ()


def count_rows(
    labels: tuple[str, ...], outputs: Tensor, targets: Tensor, numbers: Tensor, *, part: str = ""
) -> Confusions:
    """Count rows by their right and their likeliest class.

    Args:
        labels: Names of the task's classes.
        outputs: Logits of rows, (n, K); classes after the task's own count as one.
        targets: Right classes, (n,).
        numbers: Numbers of the rows, (n,).
        part: What of the task the classes are.
    """
    confidence, answers = outputs.double().softmax(dim=1).max(dim=1)
    answers = answers.clamp(max=len(labels))
    places = (answers != targets).nonzero().flatten().tolist()
    places.sort(key=lambda place: (-float(confidence[place]), int(numbers[place])))
    wrong = tuple(
        (
            int(numbers[place]),
            int(targets[place]),
            int(answers[place]),
            round(float(confidence[place]), 4),
        )
        for place in places[:_MAX_WRONG_ROWS]
    )
    counts = Counter(zip(targets.tolist(), answers.tolist(), strict=True))
    return Confusions(labels, counts, part=part, wrong=wrong)
