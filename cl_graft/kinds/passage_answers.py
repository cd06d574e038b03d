"""Reading of questions, passages and their answers from a record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cl_graft.errors import InputError, brief

__all__ = ["check_answers", "read_answers", "read_text"]


def read_text(values: Mapping[str, object], column: str, place: str, *, empty: bool = False) -> str:
    """Read a text, such as a question or a passage.

    Args:
        values: The columns of a record.
        column: Which of them.
        place: File and line, for messages.
        empty: Whether it may be empty, or missing.

    Raises:
        InputError: If the column holds no text, or an empty one that may not be.
    """
    value = values.get(column)
    if value is None and empty:
        return ""
    if not isinstance(value, str) or not (empty or value.strip()):
        raise InputError(f"{place}: column {column!r} must hold a text, got {brief(value)}")
    return value


def read_answers(value: object, place: str) -> tuple[tuple[str, int], ...]:
    """Read ``[{"text", "start"}, …]``, or SQuAD's ``{"text": […], "answer_start": […]}``.

    Raises:
        InputError: If there is no answer, or one of them has another form.
    """
    found: list[Any] = []
    if isinstance(value, Mapping):
        texts, starts = value.get("text"), value.get("answer_start")
        if isinstance(texts, list) and isinstance(starts, list) and len(texts) == len(starts):
            found = list(zip(texts, starts, strict=True))
    elif isinstance(value, list):
        found = [
            (one.get("text"), one.get("start", one.get("answer_start")))
            if isinstance(one, Mapping)
            else (None, None)
            for one in value
        ]
    answers = [
        (text, start)
        for text, start in found
        if isinstance(text, str) and text.strip() and type(start) is int and start >= 0
    ]
    if not answers or len(answers) < len(found):
        raise InputError(
            f"{place}: answers must be a list of texts with the places where they start, "
            f'[{{"text": …, "start": …}}], at least one (questions without an answer are not '
            f"supported), got {str(value)[:80]}"
        )
    return tuple(answers)


def check_answers(passage: str, answers: Sequence[tuple[str, int]], place: str) -> None:
    """Make sure that answers stand where they should in their passage.

    Raises:
        InputError: If one does not.
    """
    for text, start in answers:
        if passage[start : start + len(text)] != text:
            where = passage.find(text)
            cause = f"it begins at {where}" if where >= 0 else "the passage does not hold it"
            raise InputError(
                f"{place}: the answer {text[:60]!r} is not at character {start} of the passage: "
                f"{cause}"
            )
