"""Small files of a run beside its results, each with one record a task.

`answers.json` holds some answers that are texts, `numbers.json` right and answered numbers of
regression tasks, `curves.json` losses and dev scores while a task is learned, `errors.json` counts
of right and answered classes. Only the first holds texts of rows.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any, Generic, Literal, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from cl_graft.errors import InputError
from cl_graft.storage.files import replace_file

_Record = TypeVar("_Record")


class TaskFile(Generic[_Record]):
    """A JSON file in the folder of a run, with a record, a dataclass, for each task.

    The part of its name before the dot says what it holds.
    """

    def __init__(self, name: str, record: type[_Record], *, indent: int | None = None) -> None:
        self.name = name
        form: Any = dict.__class_getitem__((str, record))
        self._form = TypeAdapter[dict[str, _Record]](form)
        self._indent = indent

    def read(self, folder: Path) -> dict[str, _Record]:
        """Read the records of a run, by task; none where it has no such file."""
        path = folder / self.name
        if not path.is_file():
            return {}
        try:
            return self._form.validate_json(path.read_bytes())
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            key, what = ".".join(map(str, first["loc"])), Path(self.name).stem
            raise InputError(f"{path}: not the {what} of a run ({key}: {first['msg']})") from None

    def write(self, records: Mapping[str, _Record], folder: Path) -> None:
        """Write records by task; where there are none, no file."""
        if records:
            values = {task: asdict(cast(Any, record)) for task, record in records.items()}
            text = json.dumps(values, indent=self._indent, ensure_ascii=False)
            replace_file(folder / self.name, f"{text}\n".encode())


@dataclass(frozen=True)
class ShownAnswer:
    """The answer to a test row when its task was learned (None if not known), and now."""

    text: str
    right: tuple[str, ...]
    learned: str | None
    now: str

    @property
    def is_right(self) -> bool:
        """Tell whether the answer is one of the right ones, letter for letter."""
        return self.now in self.right


@dataclass(frozen=True)
class TaskAnswers:
    """Answers to the first test rows of a task.

    `same` tells whether the answers to all `rows` are, bit for bit, those of when it was learned.
    """

    rows: int
    same: bool
    shown: tuple[ShownAnswer, ...]


ANSWERS = TaskFile("answers.json", TaskAnswers, indent=1)
"""File of a run with tasks that are answered with text."""


MOST_NUMBERS = 210
"""Most rows of a task whose numbers are kept."""


@dataclass(frozen=True)
class AnsweredNumber:
    """The right number of a test row, counted from 0, and the one it is answered with."""

    row: int
    right: float
    answer: float

    @property
    def error(self) -> float:
        """The answer less the right number."""
        return self.answer - self.right


@dataclass(frozen=True)
class NumberScores:
    """How near all answers are to the right numbers: correlations, and mean size of the error."""

    pearson: float
    spearman: float
    error: float


@dataclass(frozen=True)
class TaskNumbers:
    """Right and answered numbers of a task; `learned` is None if it is not known.

    `shown` are those of some rows after the latest task, in the order of the rows: at equal
    distances through the test rows, and those with the largest errors.
    """

    rows: int
    learned: NumberScores | None
    end: NumberScores
    shown: tuple[AnsweredNumber, ...]

    def largest_errors(self, count: int) -> list[AnsweredNumber]:
        """Return the rows with the largest errors, the largest first."""
        return sorted(self.shown, key=lambda number: (-abs(number.error), number.row))[:count]


NUMBERS = TaskFile("numbers.json", TaskNumbers)
"""File of a run with tasks of regression."""


_POINTS = 30
"""Points of a loss curve at most."""

Points = tuple[tuple[int, float], ...]
"""Steps, from 1, and values."""


@dataclass(frozen=True)
class PhaseCurve:
    """Training loss, thinned out, and score on dev, a fraction, in one phase of learning a task."""

    loss: Points = ()
    dev: Points = ()


@dataclass(frozen=True)
class TaskCurves:
    """What was measured in a strategy's own training of a task, and in a dense run before it."""

    train: PhaseCurve = field(default_factory=PhaseCurve)
    dense: PhaseCurve = field(default_factory=PhaseCurve)


CURVES = TaskFile("curves.json", TaskCurves)
"""File of a run with what was measured while it learned."""


def thin_out(points: Sequence[tuple[int, float]]) -> Points:
    """Return at most 30 points: means over stretches of as many points, at the last step of each.

    Values have four significant digits.
    """
    size = -(-len(points) // _POINTS) or 1
    stretches = (points[first : first + size] for first in range(0, len(points), size))
    return tuple((part[-1][0], float(f"{mean(v for _, v in part):.4g}")) for part in stretches)


Counts = tuple[tuple[int, int, int], ...]
"""Right class, answered class, and number of rows or spans, for each pair that there is, sorted."""


@dataclass(frozen=True)
class WrongRow:
    """A test row, counted from 0, that is answered with a wrong class, and how surely."""

    row: int
    right: int
    answer: int
    confidence: float


@dataclass(frozen=True)
class ClassScore:
    """How well the rows of one class are answered; scores without rows to divide by are None."""

    rows: int
    precision: float | None
    recall: float | None
    f1: float | None


@dataclass(frozen=True)
class TaskErrors:
    """Right and answered classes of a task's test rows, or of the spans or labels in them.

    A class after the last of `labels` is one of another task; the last class of spans and of labels
    is that of one that is not there. `wrong` are the wrong rows at the end, the surest first.
    """

    labels: tuple[str, ...]
    learned: Counts | None
    end: Counts
    wrong: tuple[WrongRow, ...] = ()
    counted: Literal["rows", "spans", "labels"] = "rows"

    @property
    def classes(self) -> int:
        """The number of classes that have scores."""
        return len(self.labels) - (self.counted != "rows")

    def name(self, number: int) -> str:
        """Return the name of a class."""
        return self.labels[number] if number < len(self.labels) else "a label of another task"


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
            rows[number],
            _share(hits[number], answered[number]),
            _share(hits[number], rows[number]),
            _share(2 * hits[number], rows[number] + answered[number]),
        )
        for number in range(classes)
    ]


def confused_pairs(errors: TaskErrors) -> list[tuple[int, int, int | None, int]]:
    """Return the pairs of different classes that are confused, the most rows at the end first.

    Each is right class, answered class, and rows when learned (None if not known) and at the end.
    """
    learned = None if errors.learned is None else count_by_pair(errors.learned)
    end = count_by_pair(errors.end)
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
