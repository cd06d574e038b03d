"""Some generated answers of a run beside the right ones, as its file `answers.json` holds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from cl_graft.results.task_files import read_task_file, write_task_file

__all__ = ["ANSWERS", "ShownAnswer", "TaskAnswers", "read_answers", "write_answers"]

ANSWERS = "answers.json"
"""File of a run with tasks that are answered with text."""


@dataclass(frozen=True)
class ShownAnswer:
    """The answer to a test row; long texts are cut.

    Attributes:
        text: Input of the row.
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


_FORM = TypeAdapter(dict[str, TaskAnswers])


def read_answers(folder: Path) -> dict[str, TaskAnswers]:
    """Read the answers that a run keeps, by task; none where it has no such file.

    Raises:
        InputError: If the file does not hold answers.
    """
    return read_task_file(folder / ANSWERS, _FORM, what="answers")


def write_answers(found: Mapping[str, TaskAnswers], folder: Path) -> None:
    """Write answers by task; where there are none, no file."""
    write_task_file(folder / ANSWERS, found, indent=1)
