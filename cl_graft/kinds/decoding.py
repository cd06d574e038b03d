"""Settings of answers in free text: how they are decoded, and what of a prompt is cut."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from cl_graft.errors import InputError, nearest
from cl_graft.models.text_generation import MOST_BEAMS, MOST_TOKENS


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
