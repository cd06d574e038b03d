"""Some generated answers of a run beside the right ones, as its file `answers.json` holds them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from cl_graft.errors import InputError
from cl_graft.storage.files import replace_file

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
    path = folder / ANSWERS
    if not path.is_file():
        return {}
    try:
        return _FORM.validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise InputError(f"{path}: not the answers of a run ({place}: {first['msg']})") from None


def write_answers(found: Mapping[str, TaskAnswers], folder: Path) -> None:
    """Write answers by task; where there are none, no file."""
    if found:
        values = {name: asdict(task) for name, task in found.items()}
        text = json.dumps(values, indent=1, ensure_ascii=False)
        replace_file(folder / ANSWERS, f"{text}\n".encode())
