"""The columns of text to text, made of those that data have; labels become answers in words."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain

from cl_graft.data.bad_rows import BadRows
from cl_graft.data.column_choice import find_label, find_texts
from cl_graft.data.labels import read_label_name, whole_number
from cl_graft.data.record_files import Columns, Record, RecordFile
from cl_graft.data.task_settings import RowSettings
from cl_graft.errors import InputError, nearest
from cl_graft.kinds.text2text import Text2Text

_INPUT, _TARGET, _INSTRUCTION = "input", "target", "instruction"
_USUAL = Text2Text.columns
_NAME = re.compile(r"\w[\w -]*")


def fill_text_columns(
    files: Mapping[str, RecordFile],
    columns: Columns,
    label_names: Sequence[str] | None,
    settings: RowSettings,
    bad_rows: BadRows,
) -> tuple[dict[str, RecordFile], Columns]:
    """Return records with the columns of text to text, and what they are made of.

    A row takes the first input of the settings whose columns it has; without inputs it is the one
    that the data have, or their texts. An input that is already the whole prompt, with the
    instruction and all, is taken out of it.
    """
    train = files["train"]
    inputs = tuple(settings.input or ()) or _find_input(train, columns)
    fields = [name for text in inputs for name in find_fields(text)]
    target = columns.label or train.find(_USUAL[_TARGET])
    target = target or find_label(train, columns, fields, called=_TARGET)
    complete = any(set(find_fields(text)) <= set(train.columns) for text in inputs)
    for name in (target, *(() if complete else fields)):
        if name not in train.columns:
            raise InputError(
                f"{train.place}: there is no column {name!r}; {nearest(name, train.columns)}"
            )

    def fill(record: Record, names: Sequence[str] | None) -> Record:
        text = fill_input(record, inputs)
        if text is None:
            raise InputError(
                f"{record.place}: the row lacks a text of its input, {' or '.join(inputs)!r:.100}"
            )
        values = dict(record.values)
        values[_INPUT] = _take_out(text, settings)
        values[_TARGET] = _read_answer(record, target, names)
        if settings.instruction:
            values[_INSTRUCTION] = settings.instruction
        return Record(values, record.place)

    added = (_INPUT, _TARGET, *((_INSTRUCTION,) if settings.instruction else ()))
    made: dict[str, RecordFile] = {}
    for split, file in files.items():
        names = label_names or file.class_names.get(target)
        records = bad_rows.read_each(
            file.place, file.records, lambda record, names=names: fill(record, names)
        )
        known = tuple(dict.fromkeys((*file.columns, *added)))
        made[split] = replace(file, columns=known, records=tuple(records))
    return made, Columns(label=target, inputs=inputs)


def lacks_columns(file: RecordFile) -> bool:
    """Whether a file has neither inputs and answers by their usual names nor messages."""
    usual = chain.from_iterable(own.values() for own in Text2Text.other_columns)
    return not any(map(file.find, usual)) and not all(map(file.find, _USUAL.values()))


def fill_input(record: Record, inputs: Sequence[str]) -> str | None:
    """Make a row's input by the first template whose columns it has; None if there is none."""
    for text in inputs:
        values = [record.values.get(name) for name in find_fields(text)]
        if all(isinstance(value, str) and value.strip() for value in values):
            return text.format_map(record.values)
    return None


def find_fields(text: str) -> tuple[str, ...]:
    """Return the columns that an input names; none, or other braces, are an InputError."""
    try:
        parts = list(string.Formatter().parse(text))
    except ValueError as error:
        raise InputError(f"input {text!r}: {error}") from None
    fields = [(name, form, kind) for _, name, form, kind in parts if name is not None]
    if not fields or any(form or kind or not _NAME.fullmatch(name) for name, form, kind in fields):
        raise InputError(f"input {text!r}: braces hold the name of a column, as in '{{text}}'")
    return tuple(name for name, *_ in fields)


def _find_input(file: RecordFile, columns: Columns) -> tuple[str, ...]:
    """Return the input that a file has, or one made of its texts."""
    own = file.find(_USUAL[_INPUT])
    if own is not None and columns.text is None:
        return (f"{{{own}}}",)
    text, pair = find_texts(file, replace(columns, label=None))
    return (f"{{{text}}}" if pair is None else f"{{{text}}}\n{{{pair}}}",)


def _take_out(text: str, settings: RowSettings) -> str:
    """Take an input out of a whole prompt; anything else stays as it is."""
    instruction, template = settings.instruction, settings.template
    if not (instruction and template and f"{{{_INPUT}}}" in template):
        return text
    whole = template.replace(f"{{{_INSTRUCTION}}}", instruction)
    before, _, after = whole.partition(f"{{{_INPUT}}}")
    if text.startswith(before) and text.endswith(after) and len(before + after) < len(text):
        return text[len(before) : len(text) - len(after)]
    return text


def _read_answer(record: Record, column: str, names: Sequence[str] | None) -> object:
    value = record.values.get(column)
    number = whole_number(value)
    if names and number is not None and 0 <= number < len(names) and value not in names:
        return names[number]
    if column in _USUAL[_TARGET]:
        return value
    return read_label_name(value, record.place)
