"""Rows of text to text: an input, or chat messages, with right answers; read from records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cl_graft.errors import brief
from cl_graft.kinds.messages import Message, read_messages
from cl_graft.kinds.passage_answers import read_text_value
from cl_graft.kinds.rows import ColumnError, Row


@dataclass(frozen=True, slots=True)
class AnswerRow(Row):
    """An input and its right answers.

    Attributes:
        text: The input; of chat messages the last one before the answer.
        text_pair: The instruction; None where the data have none.
        label: 0.
        targets: Right answers; the first one trains.
        group: Name of what rows are scored together, such as a dialogue and a turn; may be empty.
        messages: Chat messages before the answer; empty where a template makes the prompt.
        cut: Side of the text that is cut where a row of no task is too long.
        place: File and line of the row, for messages; no part of its content.
    """

    targets: tuple[str, ...] = ()
    group: str = ""
    messages: tuple[Message, ...] = ()
    cut: str = "right"
    place: str = field(default="", compare=False)

    @property
    def content(self) -> list[Any]:
        """All that the row holds, as JSON."""
        messages = [[one.role, one.content] for one in self.messages]
        return [self.text, self.text_pair, list(self.targets), self.group, messages]

    @property
    def inputs(self) -> tuple[Any, ...]:
        """The texts, and all messages before the answer."""
        return (self.text, self.text_pair, self.messages)


def read_answer_row(values: Mapping[str, object], place: str) -> AnswerRow:
    """Read a row: an input and its answers, or messages that end with the answer.

    Args:
        values: The columns of a record by their usual names, such as ``"input"``.
        place: File and line, for messages.

    Raises:
        InputError: If a text is missing, or is none.

    Examples:
        >>> read_answer_row({"input": "1 + 1", "target": ["2", "two"]}, "sums.jsonl:1").targets
        ('2', 'two')
    """
    group = _read_group(values)
    if "messages" in values:
        *asked, answer = read_messages(values["messages"], place)
        targets = (answer.content,)
        return AnswerRow(
            asked[-1].content, None, 0, targets, group, messages=tuple(asked), place=place
        )
    pair = None
    if "instruction" in values:
        pair = read_text_value(values, "instruction", place, empty=True)
    alone = bool(pair and pair.strip())  # an instruction may be all that is asked
    text = read_text_value(values, "input", place, empty=alone)
    return AnswerRow(text, pair, 0, _read_targets(values.get("target"), place), group, place=place)


def _read_group(values: Mapping[str, object]) -> str:
    """Return the name of a dialogue's turn; empty where a row lacks one of the two."""
    parts = [values.get(name) for name in ("dialogue", "turn")]
    if any(part is None or not str(part).strip() for part in parts):
        return ""
    return "/".join(map(str, parts))


def _read_targets(value: object, place: str) -> tuple[str, ...]:
    """Read an answer, or a list of right answers.

    Raises:
        InputError: If there is none, or one is empty.
    """
    found: list[Any] = list(value) if isinstance(value, list | tuple) else [value]
    if not found:
        raise ColumnError(place, "target", "holds no answer")
    for number, one in enumerate(found, start=1):
        which = f"right answer {number} of {len(found)}" if len(found) > 1 else "the answer"
        if not isinstance(one, str) or not one.strip():
            what = "empty" if one is None or not str(one).strip() else f"no text: {brief(one)}"
            raise ColumnError(place, "target", f"is {what}", f"{which} in ")
    return tuple(found)
