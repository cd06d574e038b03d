"""Some answers of a run that are texts, as its file `answers.json` holds them."""

from __future__ import annotations

from dataclasses import dataclass

from cl_graft.lab.results.task_files import TaskFile

__all__ = ["ANSWERS", "ShownAnswer", "TaskAnswers"]


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
