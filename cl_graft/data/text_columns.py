"""The columns of text to text, made of those that data have.

Labels become answers in words, and texts, a single one or a pair, become inputs, so that a task of
labels can be read as text to text on the same rows.
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

from cl_graft.data.bad_rows import BadRows
from cl_graft.data.column_choice import find_label, find_texts
from cl_graft.data.labels import read_label_name, whole_number
from cl_graft.data.record_files import Columns, Record, RecordFile
from cl_graft.errors import InputError, nearest
from cl_graft.kinds.answer_rows import AnswerRow
from cl_graft.kinds.rows import Row
from cl_graft.kinds.text2text import Text2Text

_INPUT, _TARGET, _INSTRUCTION = "input", "target", "instruction"
_USUAL = Text2Text.columns
_NAME = re.compile(r"\w[\w -]*")


@dataclass(frozen=True)
class TextColumns:
    """Settings by which inputs and instructions are made.

    Attributes:
        instruction: What is asked in every row; None leaves what the data say.
        inputs: Inputs with columns in braces, such as ``"sentence 1: {text}"``; a row takes the
            first whose columns it has. Empty takes the input that the data have, or their texts.
        template: The task's prompt. An input that is already the whole prompt, with the instruction
            and all, is taken out of it.
    """

    instruction: str | None = None
    inputs: tuple[str, ...] = ()
    template: str | None = None

    def __post_init__(self) -> None:
        for text in self.inputs:
            _find_fields(text)

    def fill(
        self,
        files: Mapping[str, RecordFile],
        *,
        columns: Columns,
        label_names: Sequence[str] | None,
        bad_rows: BadRows,
    ) -> tuple[dict[str, RecordFile], Columns]:
        """Return records with the columns of text to text, and what they are made of."""
        train = files["train"]
        inputs = self.inputs or _find_input(train, columns)
        fields = [name for text in inputs for name in _find_fields(text)]
        target = columns.label or _find(train, _USUAL[_TARGET])
        target = target or find_label(train, columns, fields, called=_TARGET)
        there = {text: set(_find_fields(text)) <= set(train.columns) for text in inputs}
        unknown = () if any(there.values()) else chain(*map(_find_fields, inputs))
        for name in (target, *unknown):
            if name not in train.columns:
                raise InputError(
                    f"{train.place}: there is no column {name!r}; {nearest(name, train.columns)}"
                )
        added = (_INPUT, _TARGET, *((_INSTRUCTION,) if self.instruction else ()))
        made: dict[str, RecordFile] = {}
        for split, file in files.items():
            names = label_names or file.class_names.get(target)
            read = partial(self._fill, inputs=inputs, target=target, names=names)
            records = bad_rows.read_each(file.place, file.records, read)
            known = tuple(dict.fromkeys((*file.columns, *added)))
            made[split] = replace(file, columns=known, records=tuple(records))
        return made, Columns(label=target, inputs=tuple(inputs))

    def _fill(
        self, record: Record, *, inputs: Sequence[str], target: str, names: Sequence[str] | None
    ) -> Record:
        """Return a record with the columns of text to text."""
        values = dict(record.values)
        made = fill_input(record, inputs)
        if made is None:
            raise InputError(
                f"{record.place}: the row lacks a text of its input, {' or '.join(inputs)!r:.100}"
            )
        values[_INPUT] = self._take_out(made)
        values[_TARGET] = _read_answer(record, target, names)
        if self.instruction:
            values[_INSTRUCTION] = self.instruction
        return Record(values, record.place)

    def _take_out(self, text: str) -> str:
        """Take an input out of a whole prompt; anything else stays as it is."""
        if not (self.instruction and self.template and f"{{{_INPUT}}}" in self.template):
            return text
        whole = self.template.replace(f"{{{_INSTRUCTION}}}", self.instruction)
        before, _, after = whole.partition(f"{{{_INPUT}}}")
        if text.startswith(before) and text.endswith(after) and len(before + after) < len(text):
            return text[len(before) : len(text) - len(after)]
        return text


def lacks_columns(file: RecordFile) -> bool:
    """Whether a file has neither inputs and answers by their usual names nor messages."""
    chat = any(_find(file, usual) for own in Text2Text.other_columns for usual in own.values())
    return not chat and any(_find(file, usual) is None for usual in _USUAL.values())


def answer_with_labels(rows: Sequence[Row], label_names: Sequence[str]) -> tuple[AnswerRow, ...]:
    """Return rows of classes as rows of text to text, whose answers are the names of labels."""
    return tuple(
        AnswerRow(
            row.text if row.text_pair is None else f"{row.text}\n{row.text_pair}",
            None,
            0,
            (label_names[int(row.label)],),
        )
        for row in rows
    )


def _find_input(file: RecordFile, columns: Columns) -> tuple[str, ...]:
    """Return the input that a file has, or one made of its texts."""
    own = _find(file, _USUAL[_INPUT])
    if own is not None and columns.text is None:
        return (f"{{{own}}}",)
    text, pair = find_texts(file, replace(columns, label=None))
    return (f"{{{text}}}" if pair is None else f"{{{text}}}\n{{{pair}}}",)


def _find_fields(text: str) -> tuple[str, ...]:
    """Return the columns that an input names."""
    try:
        parts = list(string.Formatter().parse(text))
    except ValueError as error:
        raise InputError(f"input {text!r}: {error}") from None
    found = [(name, form, kind) for _, name, form, kind in parts if name is not None]
    if not found or any(form or kind or not _NAME.fullmatch(name) for name, form, kind in found):
        raise InputError(f"input {text!r}: braces hold the name of a column, as in '{{text}}'")
    return tuple(name for name, *_ in found)


def fill_input(record: Record, inputs: Sequence[str]) -> str | None:
    """Make a row's input by the first template whose columns it has; None if there is none."""
    text = next((text for text in inputs if _has_all(record, _find_fields(text))), None)
    return None if text is None else text.format_map(record.values)


def _find(file: RecordFile, names: Sequence[str]) -> str | None:
    return next((name for name in names if name in file.columns), None)


def _has_all(record: Record, names: Sequence[str]) -> bool:
    values = [record.values.get(name) for name in names]
    return all(isinstance(value, str) and value.strip() for value in values)


def _read_answer(record: Record, column: str, names: Sequence[str] | None) -> object:
    """Return a right answer, or a list of them; the number of a label as its name."""
    value = record.values.get(column)
    number = whole_number(value)
    if names and number is not None and 0 <= number < len(names) and value not in names:
        return names[number]
    if column in _USUAL[_TARGET]:
        return value
    return read_label_name(value, record.place)
