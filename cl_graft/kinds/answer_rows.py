"""Rows of text to text, read from records, and how their answers are decoded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from cl_graft.errors import InputError, brief, nearest
from cl_graft.kinds.messages import Message, read_messages
from cl_graft.kinds.rows import ColumnError, Row, read_text_value
from cl_graft.models.text_generation import MOST_BEAMS, MOST_TOKENS


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
    """Read a row: an input and its answers, or messages that end with the answer."""
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
    """Read an answer, or a list of right answers."""
    found: list[Any] = list(value) if isinstance(value, list | tuple) else [value]
    if not found:
        raise ColumnError(place, "target", "holds no answer")
    for number, one in enumerate(found, start=1):
        which = f"right answer {number} of {len(found)}" if len(found) > 1 else "the answer"
        if not isinstance(one, str) or not one.strip():
            what = "empty" if one is None or not str(one).strip() else f"no text: {brief(one)}"
            raise ColumnError(place, "target", f"is {what}", f"{which} in ")
    return tuple(found)


@dataclass(frozen=True)
class Decoding:
    """How a task of text to text is answered.

    Attributes:
        beams: Beams of beam search; 1 is greedy search.
        longest_answer: Tokens of the longest answer, its end included; they are a part of
            `max_length`. None means that of the longest training answer, but at most half of
            `max_length`.
        stop: Texts at which an answer ends; they are no part of it. A text that is one token of the
            tokenizer ends the decoding as well.
        cut: Side of a text that is cut where a prompt is too long.

    Raises:
        InputError: If a value is outside its range.
    """

    beams: int = 1
    longest_answer: int | None = None
    stop: tuple[str, ...] = ()
    cut: Literal["left", "right"] = "right"

    def __post_init__(self) -> None:
        several = (self.stop,) if isinstance(self.stop, str) else self.stop
        if not isinstance(several, list | tuple):
            raise InputError(f"decoding: stop must be a list of texts, got {self.stop!r}")
        object.__setattr__(self, "stop", tuple(several))
        for name, most in (("beams", MOST_BEAMS), ("longest_answer", MOST_TOKENS)):
            value = getattr(self, name)
            if value is None and name == "longest_answer":
                continue
            if type(value) is not int or not 1 <= value <= most:
                raise InputError(f"decoding: {name} must be in [1, {most}], got {value!r}")
        if not all(isinstance(text, str) and text for text in self.stop):
            raise InputError(f"decoding: stop must be texts that are not empty, got {self.stop}")
        if self.cut not in ("left", "right"):
            raise InputError(f"decoding: cut must be 'left' or 'right', got {self.cut!r}")

    @staticmethod
    def of(values: Mapping[str, Any]) -> Decoding:
        """Return the settings that a mapping holds, as `to_dict` gives it.

        Raises:
            InputError: If there is no such setting, or a value is wrong.
        """
        if not isinstance(values, Mapping):
            raise InputError(f"decoding must be settings by name, got {values!r:.60}")
        known = [one.name for one in fields(Decoding)]
        if unknown := next((name for name in values if name not in known), None):
            raise InputError(f"decoding: no setting {unknown!r}; {nearest(unknown, known)}")
        return Decoding(**values)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON."""
        return {**asdict(self), "stop": list(self.stop)}
