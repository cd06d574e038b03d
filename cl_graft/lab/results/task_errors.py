"""The errors of a run on the test rows of its tasks, as its file `errors.json` holds them.

Classes are those of rows, or of the spans or labels in them. It holds counts, numbers of rows and
names of labels, and no text of a row.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from cl_graft.lab.results.task_files import TaskFile

_Number = Annotated[int, Field(ge=0, lt=2**63)]

Counts = tuple[tuple[_Number, _Number, _Number], ...]
"""Right class, answered class, and number of rows or spans, for each pair that there is, sorted."""


@dataclass(frozen=True)
class WrongRow:
    """A test row that is answered with a wrong class.

    Attributes:
        row: Number of the row among the task's test rows, from 0.
        right: The right class.
        answer: The class that was answered.
        confidence: Probability of the answer, in [0, 1].
    """

    row: _Number
    right: _Number
    answer: _Number
    confidence: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


@dataclass(frozen=True)
class ClassScore:
    """How well one class is answered.

    Attributes:
        rows: Number of test rows of the class.
        precision: Share of the rows answered with it that are of it; None if there are none.
        recall: Share of its rows that are answered with it; None if it has none.
        f1: Harmonic mean of the two; None if the class has no rows and is never answered.
    """

    rows: int
    precision: float | None
    recall: float | None
    f1: float | None


@dataclass(frozen=True)
class TaskErrors:
    """Right and answered classes of a task's test rows, or of the spans or labels in them.

    Attributes:
        labels: Names of the classes; a class after the last is one of another task. The last class
            of spans and of labels is that of one that is not there.
        learned: Counts on the day the task was learned; None if they are not known.
        end: Counts after the latest task.
        wrong: Wrong rows after the latest task: the first ones by confidence.
        counted: What is counted.

    Raises:
        ValueError: If no row is counted, or a right class has no name.
    """

    labels: tuple[str, ...]
    learned: Counts | None
    end: Counts
    wrong: tuple[WrongRow, ...] = ()
    counted: Literal["rows", "spans", "labels"] = "rows"

    def __post_init__(self) -> None:
        """Check that the counts are of the task's own rows."""
        if not any(rows for *_, rows in self.end):
            raise ValueError("no test row is counted")
        right = [pair[0] for pair in (*(self.learned or ()), *self.end)]
        right += [one.right for one in self.wrong]
        if max(right) >= len(self.labels):
            raise ValueError(f"{len(self.labels)} labels, so none has the number {max(right)}")

    @property
    def classes(self) -> int:
        """The number of classes that have scores."""
        return len(self.labels) - (self.counted != "rows")

    def name(self, place: int) -> str:
        """Return the name of a class."""
        return self.labels[place] if place < len(self.labels) else "a label of another task"


ERRORS = TaskFile("errors.json", TaskErrors)
"""File of a run with tasks of classification, tagging or several labels a row."""


def count_wrong(counts: Counts) -> int:
    """Return the number of wrong rows."""
    return sum(rows for right, answer, rows in counts if right != answer)


def score_classes(counts: Counts, *, classes: int) -> list[ClassScore]:
    """Return precision, recall and F1 of each class."""
    rows: Counter[int] = Counter()
    answered: Counter[int] = Counter()
    hits: Counter[int] = Counter()
    for right, answer, count in counts:
        rows[right] += count
        answered[answer] += count
        hits[right] += count * (right == answer)
    return [
        ClassScore(
            rows[place],
            _share(hits[place], answered[place]),
            _share(hits[place], rows[place]),
            _share(2 * hits[place], rows[place] + answered[place]),
        )
        for place in range(classes)
    ]


def confused_pairs(found: TaskErrors) -> list[tuple[int, int, int | None, int]]:
    """Return the pairs of different classes that are confused, the most rows at the end first.

    Returns:
        Right class, answered class, and rows when the task was learned (None if they are not
        known) and at the end.
    """
    learned = None if found.learned is None else count_by_pair(found.learned)
    end = count_by_pair(found.end)
    pairs = [pair for pair in {**end, **(learned or {})} if pair[0] != pair[1]]
    pairs.sort(key=lambda pair: (-end.get(pair, 0), -(learned or {}).get(pair, 0), pair))
    return [
        (*pair, None if learned is None else learned.get(pair, 0), end.get(pair, 0))
        for pair in pairs
    ]


def count_by_pair(counts: Counts) -> dict[tuple[int, int], int]:
    """Return the number of rows of each pair of right and answered class."""
    return {(right, answer): rows for right, answer, rows in counts}


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
