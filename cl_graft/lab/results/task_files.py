"""Small files of a run beside its results, each with one record a task.

`answers.json` holds some answers that are texts, `numbers.json` right and answered numbers of
regression tasks, `curves.json` losses and dev scores while a task is learned, `errors.json`
(`cl_graft.lab.results.task_errors`) counts of answers. Only the first holds texts of rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import mean
from typing import Annotated, Any, Generic, TypeVar, cast

from pydantic import Field, TypeAdapter, ValidationError

from cl_graft.errors import InputError
from cl_graft.storage.files import replace_file

_Record = TypeVar("_Record")


class TaskFile(Generic[_Record]):
    """A JSON file in the folder of a run, with a record, a dataclass, for each task.

    Attributes:
        name: Name of the file; the part before the dot says what it holds.
    """

    def __init__(self, name: str, record: type[_Record], *, indent: int | None = None) -> None:
        """Describe a file.

        Args:
            name: Name of the file.
            record: Class of the records.
            indent: Spaces by which a level is indented; None writes one line.
        """
        self.name = name
        form: Any = dict.__class_getitem__((str, record))
        self._form = TypeAdapter[dict[str, _Record]](form)
        self._indent = indent

    def read(self, folder: Path) -> dict[str, _Record]:
        """Read the records of a run, by task; none where it has no such file.

        Raises:
            InputError: If the file holds something else.
        """
        path = folder / self.name
        if not path.is_file():
            return {}
        try:
            return self._form.validate_json(path.read_bytes())
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place, what = ".".join(map(str, first["loc"])), Path(self.name).stem
            raise InputError(f"{path}: not the {what} of a run ({place}: {first['msg']})") from None

    def write(self, found: Mapping[str, _Record], folder: Path) -> None:
        """Write records by task; where there are none, no file."""
        if found:
            values = {task: asdict(cast(Any, record)) for task, record in found.items()}
            text = json.dumps(values, indent=self._indent, ensure_ascii=False)
            replace_file(folder / self.name, f"{text}\n".encode())


@dataclass(frozen=True)
class ShownAnswer:
    """The answer to a test row.

    Attributes:
        text: Input of the row; a long one is cut.
        right: The right answers.
        learned: Answer on the day the task was learned; None if it is not known.
        now: Answer after the latest task.
    """

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
    """Answers to the test rows of a task.

    Attributes:
        rows: Number of test rows.
        same: Whether all their answers are, bit for bit, those of the day the task was learned.
        shown: Answers to the first rows.
    """

    rows: int
    same: bool
    shown: tuple[ShownAnswer, ...]


ANSWERS = TaskFile("answers.json", TaskAnswers, indent=1)
"""File of a run with tasks that are answered with text."""


MOST_NUMBERS = 210
"""Most rows of a task whose numbers are kept."""

_LARGEST = 3.5e38
_Count = Annotated[int, Field(ge=0, lt=2**63)]
_Value = Annotated[float, Field(ge=-_LARGEST, le=_LARGEST, allow_inf_nan=False)]
"""A number in the range of fp32."""
_Correlation = Annotated[float, Field(ge=-1.001, le=1.001, allow_inf_nan=False)]


@dataclass(frozen=True)
class AnsweredNumber:
    """The number that a test row is answered with.

    Attributes:
        row: Number of the row among the task's test rows, from 0.
        right: The right number.
        answer: The number that was answered.
    """

    row: _Count
    right: _Value
    answer: _Value

    @property
    def error(self) -> float:
        """The answer less the right number."""
        return self.answer - self.right


@dataclass(frozen=True)
class NumberScores:
    """How near the answers to all test rows are to the right numbers.

    Attributes:
        pearson: Correlation of the two, in [-1, 1]; 0 where either is constant.
        spearman: Correlation of their ranks, in [-1, 1].
        error: Mean size of the error, >= 0, in the unit of the numbers.
    """

    pearson: _Correlation
    spearman: _Correlation
    error: Annotated[float, Field(ge=0, le=2 * _LARGEST, allow_inf_nan=False)]


@dataclass(frozen=True)
class TaskNumbers:
    """Right and answered numbers of the test rows of a task.

    Attributes:
        rows: Number of test rows.
        learned: Scores on the day the task was learned; None if they are not known.
        end: Scores after the latest task.
        shown: Numbers of some rows after the latest task, in the order of the rows: at equal
            distances through the test rows, and those with the largest errors.

    Raises:
        ValueError: If there are no numbers, or more than rows.
    """

    rows: _Count
    learned: NumberScores | None
    end: NumberScores
    shown: Annotated[tuple[AnsweredNumber, ...], Field(min_length=1, max_length=MOST_NUMBERS)]

    def __post_init__(self) -> None:
        """Check that the numbers are those of different test rows."""
        places = {one.row for one in self.shown}
        if len(places) < len(self.shown) or max(places) >= self.rows:
            raise ValueError(f"numbers of {len(self.shown)} different rows below {self.rows}")

    def largest_errors(self, count: int) -> list[AnsweredNumber]:
        """Return the rows with the largest errors, the largest first."""
        return sorted(self.shown, key=lambda one: (-abs(one.error), one.row))[:count]


NUMBERS = TaskFile("numbers.json", TaskNumbers)
"""File of a run with tasks of regression."""


_POINTS = 30
"""Points of a loss curve at most."""

Points = tuple[tuple[Annotated[int, Field(ge=0, lt=2**63)], float], ...]
"""Steps, from 1, and values."""


@dataclass(frozen=True)
class PhaseCurve:
    """What was measured in one phase of learning a task.

    Attributes:
        loss: Training loss over steps; of many steps the mean over equal stretches, at the last
            step of each.
        dev: Score on dev, a fraction in the task's metric, where it was evaluated.
    """

    loss: Points = ()
    dev: Points = ()


@dataclass(frozen=True)
class TaskCurves:
    """What was measured while a task was learned.

    Attributes:
        train: The strategy's own training; of grafting that of the region.
        dense: The dense run before it, where there is one.
    """

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
    return tuple((own[-1][0], float(f"{mean(v for _, v in own):.4g}")) for own in stretches)
