"""Rows of a task, before and after encoding, answers to them, and counts of their classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from cl_graft.errors import InputError, brief
from cl_graft.runtime.seeding import permutation

_MAX_WRONG_ROWS = 10
LABEL_COLUMNS = ("label", "labels", "class", "category", "target", "coarse_label", "label_text")
"""Usual names of the column of labels."""


class ColumnError(InputError):
    """A kind cannot use a value of a column, called by its name in the kind."""

    def __init__(self, origin: str, column: str, fault: str, part: str = "") -> None:
        super().__init__(origin, column, fault, part)  # so that it can be pickled
        self.column = column

    def __str__(self) -> str:
        return self.rename(self.column)

    def rename(self, column: str) -> str:
        """Return the sentence with the column's name in the data."""
        origin, _, fault, part = self.args
        return f"{origin}: {part}column {column!r} {fault}"


def read_text_value(
    values: Mapping[str, object], column: str, origin: str, *, empty: bool = False
) -> str:
    """Read a text, such as a question or a passage."""
    value = values.get(column)
    if value is None and empty:
        return ""
    if not isinstance(value, str) or not (empty or value.strip()):
        raise ColumnError(origin, column, f"must hold a text, got {brief(value)}")
    return value


@dataclass(frozen=True, slots=True)
class Row:
    """One labelled text, or pair of texts; kinds whose rows hold more extend it.

    Attributes:
        text: First text.
        text_pair: Second text; None if there is none.
        label: Class id in [0, number of classes), or a number for a regression; 0 where rows have
            neither.

    Examples:
        >>> Row("The soup was cold.", None, 0).text
        'The soup was cold.'
    """

    text: str
    text_pair: str | None
    label: int | float

    @property
    def content(self) -> list[Any]:
        """All that the row holds, as JSON."""
        return [self.text, self.text_pair, self.label]

    @property
    def inputs(self) -> tuple[Any, ...]:
        """All that the row asks with, without its answer; rows of the same inputs are doubles."""
        return (self.text, self.text_pair)


@dataclass(frozen=True, slots=True, eq=False)
class EncodedRows:
    """Rows as a model takes them.

    Attributes:
        inputs: int64 of shape (m, 2, max_length): token ids; and 0 for padding, 1 for the first
            segment, 2 for the second. A row that is read in several windows has as many inputs.
        targets: Targets of the inputs, of shape (m,) or (m, P); what rows without labels have here
            means nothing.
        numbers: Number of the row of each input, int64 (m,).
        cut: Number of rows that were longer than `max_length`, and lost a part of their text, or of
            the answer that trains.
        places: For each input, the places of its tokens in the row; None where answers need none.
        tokenizer: The tokenizer, where answers are read with it.
    """

    inputs: Tensor
    targets: Tensor
    numbers: Tensor
    cut: int
    places: tuple[Any, ...] | None = None
    tokenizer: Any = None


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a text.

    Attributes:
        start: Place of its first character in the text (for extractive QA: in the passage).
        end: Place after its last character.
        type: Name of its type; empty for an answer in a passage.
        text: The part itself.

    Examples:
        >>> text = "in New York"
        >>> span = Span(3, 11, "place", "New York")
        >>> text[span.start : span.end] == span.text
        True
    """

    start: int
    end: int
    type: str
    text: str


@dataclass(frozen=True)
class Answer:
    """The answer of a task to one text.

    Attributes:
        label: Name of the likeliest label; the number itself for a regression; the intent, or an
            empty text, for tagging; the part of the passage for extractive QA; several labels with
            ``|`` between them.
        probabilities: Probability of each label, by name, summing to 1; where a text can have
            several labels each is one by itself. Empty where there are none.
        logits: Output of the model, in the order of the labels; empty for tagging and extractive
            QA.
        temperature: Number that divides the logits, > 0, so that the probability of an answer is
            the share of such answers that were right on dev. None if the bank holds none: then the
            probabilities are those of the model, which tend to be too high.
        entry: Position of the entry that answered.
        spans: Tagged parts of the text, or the one part of the passage that answers.
        tags: Tag of each word of the text, for tagging; empty otherwise.
        labels: The labels, where a text can have several or none; None otherwise.
    """

    label: str | float
    probabilities: Mapping[str, float]
    logits: tuple[float, ...] = ()
    temperature: float | None = None
    entry: int | None = None
    spans: tuple[Span, ...] = ()
    tags: tuple[str, ...] = ()
    labels: tuple[str, ...] | None = None

    @property
    def confidence(self) -> float | None:
        """Probability of the one label, in [0, 1]; None where there is no one, or none has any."""
        return None if self.labels is not None else self.probabilities.get(str(self.label))


@dataclass(frozen=True)
class Confusions:
    """How often each class was answered where each was right.

    Attributes:
        labels: Names of the classes; a class after the last is one of another task. The last class
            of spans and of labels is that of one that is not there.
        counts: Number of cases by right and answered class; not empty.
        counted: What is counted.
        part: What of the task is counted, such as ``"intents"``; empty for all of it.
        wrong: Number of the row, right class, answered class and probability of the answer, of the
            wrong rows that the model is surest of.
    """

    labels: tuple[str, ...]
    counts: Mapping[tuple[int, int], int]
    counted: Literal["rows", "spans", "labels"] = "rows"
    part: str = ""
    wrong: tuple[tuple[int, int, int, float], ...] = ()


def count_rows(
    labels: tuple[str, ...], outputs: Tensor, targets: Tensor, numbers: Tensor, *, part: str = ""
) -> Confusions:
    """Count rows by their right and their likeliest class."""
    confidence, answers = outputs.double().softmax(dim=1).max(dim=1)
    answers = answers.clamp(max=len(labels))
    places = (answers != targets).nonzero().flatten().tolist()
    places.sort(key=lambda at: (-float(confidence[at]), int(numbers[at])))
    wrong = tuple(
        (int(numbers[at]), int(targets[at]), int(answers[at]), round(float(confidence[at]), 4))
        for at in places[:_MAX_WRONG_ROWS]
    )
    counts = Counter(zip(targets.tolist(), answers.tolist(), strict=True))
    return Confusions(labels, counts, part=part, wrong=wrong)


def limit_rows(
    rows: tuple[Row, ...], limit: int | None, seed: int, key: str, *, every_class: bool = False
) -> tuple[Row, ...]:
    """Draw at most `limit` rows by a seed, and leave them in their order.

    Rows of one group, which are scored together, are drawn together: as many whole groups as fit.
    """
    if limit is None:
        return rows
    if limit < 1:
        raise InputError(f"{key} must be at least 1, got {limit}")
    if limit >= len(rows):
        return rows
    order = permutation(len(rows), seed, key).tolist()
    if every_class:
        first = {rows[index].label: index for index in reversed(order)}
        leading = set(first.values())
        order.sort(key=lambda index: index not in leading)
    named = [str(getattr(row, "group", "")) for row in rows]
    groups = named if any(named) else list(range(len(rows)))
    members: dict[str | int, list[int]] = {}
    for index, group in enumerate(groups):
        members.setdefault(group, []).append(index)
    drawn: list[int] = []
    for group in dict.fromkeys(groups[index] for index in order):
        if len(drawn) + len(members[group]) > limit:
            break
        drawn += members[group]
    if not drawn:
        raise InputError(f"{key} {limit} is less than the rows that are scored together; raise it")
    return tuple(rows[index] for index in sorted(drawn))
