"""Reading of questions, passages and their answers from a record."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from cl_graft.errors import InputError, brief
from cl_graft.kinds.rows import ColumnError

_SPELLINGS: tuple[tuple[Callable[[str], str], str], ...] = (
    (str.casefold, "capital letters"),
    (lambda text: " ".join(text.split()), "blanks or line ends"),
    (partial(unicodedata.normalize, "NFKC"), "characters of the same look, or marks apart"),
)


def read_text_value(
    values: Mapping[str, object], column: str, place: str, *, empty: bool = False
) -> str:
    """Read a text, such as a question or a passage.

    Args:
        values: Values of a record by column.
        column: Name of the column to read.
        place: File and line, for messages.
        empty: Whether the text may be empty or missing.

    Raises:
        InputError: If the column holds no text, or an empty text where none is allowed.
    """
    value = values.get(column)
    if value is None and empty:
        return ""
    if not isinstance(value, str) or not (empty or value.strip()):
        raise ColumnError(place, column, f"must hold a text, got {brief(value)}")
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
            f"supported), got {brief(value)}{_explain_form(value, [start for _, start in found])}"
        )
    return tuple(answers)


def _explain_form(value: object, starts: Sequence[object]) -> str:
    """Return the end of a sentence that says why answers have another form, where it is known."""
    if isinstance(value, str):
        return "; a text has no place, and CSV and TSV hold no lists: write JSON lines"
    wrong = next((one for one in starts if type(one) is not int or one < 0), None)
    return "" if wrong is None else f"; a start is a whole number from 0, got {brief(wrong)}"


def check_answers(passage: str, answers: Sequence[tuple[str, int]], place: str) -> None:
    """Make sure that answers stand where they should in their passage.

    Raises:
        InputError: If one does not.
    """
    for text, start in answers:
        if passage[start : start + len(text)] != text:
            raise InputError(
                f"{place}: the answer {text[:60]!r} is not at character {start} of the passage: "
                f"{_explain_place(passage, text, start)}"
            )


def _explain_place(passage: str, text: str, start: int) -> str:
    """Say where an answer is, and why its place was taken for another, where that is plain."""
    places = [match.start() for match in re.finditer(f"(?={re.escape(text)})", passage)]
    if not places:
        for spell, what in _SPELLINGS:
            if spell(text) in spell(passage):
                return f"the passage has it with other {what}"
        return "the passage does not hold it"
    nearest = min(places, key=lambda place: abs(place - start))
    before = passage[:nearest]
    for unit, length in (
        ("bytes", len(before.encode(errors="surrogatepass"))),
        ("units of UTF-16", len(before.encode("utf-16-le", "surrogatepass")) // 2),
        ("line ends as one character", nearest - before.count("\r\n")),
    ):
        if length == start:
            return f"it begins at {nearest}; {start} counts {unit}"
    return f"it begins at {nearest}"
