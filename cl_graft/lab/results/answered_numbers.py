"""Right and answered numbers of regression tasks, as the file `numbers.json` of a run holds them.

It holds numbers of rows, their right and answered values, and no text of a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from cl_graft.lab.results.task_files import TaskFile

__all__ = ["MOST_NUMBERS", "NUMBERS", "AnsweredNumber", "NumberScores", "TaskNumbers"]

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
