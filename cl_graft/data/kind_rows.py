"""Rows of kinds that have columns of their own, such as words and tags, or several labels."""

from __future__ import annotations

import ast
import json
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

from cl_graft.data.bad_rows import BadRows
from cl_graft.data.columns import LabelledRows, find_label, find_texts
from cl_graft.data.labels import read_label_name, whole_number
from cl_graft.data.record_files import Columns, Record, RecordFile
from cl_graft.data.task_settings import RowSettings
from cl_graft.data.text_files import find_fault
from cl_graft.errors import InputError, join_names, nearest
from cl_graft.kinds import KINDS, ColumnError, Kind, Row
from cl_graft.kinds.rows import LABEL_COLUMNS
from cl_graft.kinds.text2text import Text2Text

_LABELS = "label_list"
_USUAL = (_LABELS, *LABEL_COLUMNS)
_MARKS = {"1": True, "1.0": True, "true": True, "0": False, "0.0": False, "false": False}
_OTHER_SEPARATORS = ",;/"


def choose_kind(file: RecordFile, named: str | None) -> Kind | None:
    """Return the kind whose columns a file has; None for a classification or a regression."""
    if named is not None:
        kind = KINDS.find(named)
        missing = [usual for usual in kind.columns.values() if file.find(usual) is None]
        if missing and _choose_columns(kind, file) is None:
            raise InputError(
                f"{file.origin}: a task of kind {named!r} needs a column "
                f"{' or '.join(missing[0])}, found are "
                f"{join_names(file.columns) or 'none'}{file.note_on_unread}"
            )
        return kind if kind.columns else None
    for kind in KINDS.values():
        if kind.columns and _choose_columns(kind, file) is not None:
            return kind
    return None


def read_kind_rows(
    kind: Kind,
    files: Mapping[str, RecordFile],
    *,
    declared: Mapping[str, Sequence[str]],
    bad: BadRows,
) -> LabelledRows:
    """Turn the records of all splits into rows of a kind; `declared` are names by field."""
    required = _choose_columns(kind, files["train"]) or kind.columns
    drafts: dict[str, list[tuple[Any, str]]] = {}
    hidden: list[str] = []
    for split, file in files.items():
        columns = {name: file.find(names) for name, names in {**required, **kind.optional}.items()}
        target = required.get(kind.target_column, ())
        if split != "train" and target and _has_no_answers(file, columns[kind.target_column]):
            bad.notes.append(
                f"{file.origin}: no row has an answer in column "
                f"{columns[kind.target_column] or target[0]!r}; the {split} split is left out"
            )
            hidden.append(split)
            continue
        read = partial(_read, kind, columns, frozenset(required))
        drafts[split] = bad.read_each(file.origin, file.records, read)
    made, fields = kind.make_rows(drafts, declared)
    splits = {
        split: tuple(bad.read_each(files[split].origin, rows, _unwrap))
        for split, rows in made.items()
    }
    names = fields.pop("label_names", ())
    return LabelledRows(splits, names, Columns(), tuple(hidden), kind=kind.name, fields=fields)


def _choose_columns(kind: Kind, file: RecordFile) -> Mapping[str, tuple[str, ...]] | None:
    """Return the columns of a kind that a file has all of; None if it has not."""
    for columns in (kind.columns, *kind.other_columns):
        if all(file.find(usual) for usual in columns.values()):
            return columns
    return None


def _read(
    kind: Kind, columns: Mapping[str, str | None], needed: frozenset[str], record: Record
) -> tuple[Any, str]:
    for name, column in columns.items():
        if column is not None and column not in record.values and name in needed:
            raise InputError(
                f"{record.origin}: there is no column {column!r}; {nearest(column, record.values)}"
            )
    values = {
        name: record.values[column]
        for name, column in columns.items()
        if column is not None and column in record.values
    }
    for name, value in values.items():
        if fault := _find_fault(value):
            raise InputError(f"{record.origin}: the text in column {columns[name]!r} {fault}")
    try:
        return kind.read(values, record.origin), record.origin
    except ColumnError as error:
        raise InputError(error.rename(columns.get(error.column) or error.column)) from None


def _has_no_answers(file: RecordFile, column: str | None) -> bool:
    """Whether a file has rows, and none of them has an answer, as hidden test rows have none."""
    values = [None if column is None else record.values.get(column) for record in file.records]
    return bool(values) and not any(map(_is_answer, values))


def _is_answer(value: object) -> bool:
    if isinstance(value, Mapping):
        return any(map(_is_answer, value.values()))
    return value not in (None, "", [], ())


def _find_fault(value: object) -> str | None:
    left = [value]
    while left:
        part = left.pop()
        if isinstance(part, Mapping):
            left += part.values()
        elif isinstance(part, list | tuple):
            texts = all(isinstance(item, str) for item in part)
            left += [" ".join(map(str, part))] if texts else part
        elif isinstance(part, str) and part.strip() and (fault := find_fault(part)):
            return fault
    return None


def _unwrap(row: Row | InputError) -> Row:
    if isinstance(row, InputError):
        raise row
    return row


def has_label_lists(file: RecordFile) -> bool:
    """Tell whether the usual column of labels holds lists."""
    column = file.find(_USUAL)
    values = [record.values.get(column) for record in file.records] if column else []
    given = [value for value in values if value is not None]
    return bool(given) and all(isinstance(value, list | tuple) for value in given)


def fill_label_lists(
    files: Mapping[str, RecordFile],
    columns: Columns,
    label_names: Sequence[str] | None,
    separator: str,
    bad_rows: BadRows,
) -> tuple[dict[str, RecordFile], tuple[str, ...] | None, Columns]:
    """Return records with texts and lists of labels, label names, and the columns they are of.

    Labels are read from the column that `columns` name, or else from the columns of 0 and 1 that
    label names name, from one of the usual names, or from all columns of 0 and 1.
    """
    train = files["train"]
    text, pair = find_texts(train, columns)
    column = columns.label
    marks: tuple[str, ...] = ()
    if column is None and label_names and set(label_names) <= set(train.columns):
        marks = tuple(label_names)
    elif column is None and (column := train.find(_USUAL)) is None:
        marks = _find_marks(train)
    if column is None and len(marks) < 2:
        raise InputError(
            f"{train.origin}: no labels found among {join_names(train.columns)}; call the "
            f"column {_LABELS!r} (a list, or names with {separator!r} between them), name it with "
            f"label, or name two or more columns of 0 and 1 as label_names{train.note_on_unread}"
        )
    names = label_names if column is None else train.class_names.get(column) or label_names
    texts = {"text": text, **({"text_pair": pair} if pair else {})}

    def read(record: Record, hidden: bool) -> Record:
        for name in (*texts.values(), *(() if hidden else filter(None, (column, *marks)))):
            if name not in record.values:
                raise InputError(f"{record.origin}: there is no column {name!r}")
        labels = None
        if not hidden and column is None:
            labels = [name for name in marks if _read_mark(record, name)]
        elif not hidden:
            labels = _read_label_list(record, column or "", names, separator)
        made = {usual: record.values[name] for usual, name in texts.items()}
        return Record({**made, _LABELS: labels}, record.origin)

    made: dict[str, RecordFile] = {}
    for split, file in files.items():
        hidden = split != "train" and not {column, *marks} & set(file.columns)
        records = bad_rows.read_each(file.origin, file.records, partial(read, hidden=hidden))
        made[split] = replace(file, columns=(*texts, _LABELS), records=tuple(records))
    if column is not None:
        _check_separator(train, made["train"], column, separator)
    declared = marks or (tuple(names) if names else None)
    return made, declared, Columns(text=text, text_pair=pair, label=column)


def _read_label_list(
    record: Record, column: str, names: Sequence[str] | None, separator: str
) -> list[str]:
    value = record.values[column]
    if isinstance(value, str):
        listed = _parse_list(value)
        value = value.split(separator) if listed is None else listed
    elif value is None:
        value = []
    elif not isinstance(value, list | tuple):
        value = [value]
    labels: dict[str, None] = {}
    for item in value:
        number = whole_number(item)
        if number is not None and names and str(item) not in names and 0 <= number < len(names):
            item = names[number]
        elif number is not None:
            item = str(number)
        if not isinstance(item, str):
            raise InputError(
                f"{record.origin}: column {column!r} must hold names of labels, got {item!r:.60}"
            )
        labels |= {item.strip(): None} if item.strip() else {}
    return list(labels)


def _check_separator(file: RecordFile, made: RecordFile, column: str, separator: str) -> None:
    if any(len(record.values[_LABELS] or ()) > 1 for record in made.records):  # pyright: ignore[reportArgumentType]
        return
    for record in file.records:
        value = record.values.get(column)
        mark = next((m for m in _OTHER_SEPARATORS if m in str(value)), None)
        if isinstance(value, str) and mark is not None:
            raise InputError(
                f"{record.origin}: no training row has two labels if {separator!r} parts "
                f"those in column {column!r}, and this one has {value!r:.60}; is {mark!r} the "
                "label_separator?"
            )


def _find_marks(file: RecordFile) -> tuple[str, ...]:
    return tuple(
        name
        for name in file.columns
        if all(_as_mark(record.values.get(name)) is not None for record in file.records)
    )


def _as_mark(value: object) -> bool | None:
    return _MARKS.get(str(value).strip().lower())


def _read_mark(record: Record, column: str) -> bool:
    mark = _as_mark(record.values[column])
    if mark is None:
        raise InputError(
            f"{record.origin}: column {column!r} must hold 0 or 1, got "
            f"{record.values[column]!r:.60}"
        )
    return mark


def _parse_list(text: str) -> list[object] | None:
    """Return the list that a text is, in JSON or as Python writes it; None for any other text."""
    if not text.lstrip().startswith("["):
        return None
    for parse in (json.loads, ast.literal_eval):
        try:
            parsed = parse(text.strip())
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
        if isinstance(parsed, list):
            return parsed
    return None


_INPUT, _TARGET, _INSTRUCTION = "input", "target", "instruction"
_TEXT_COLUMNS = Text2Text.columns
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
    target = columns.label or train.find(_TEXT_COLUMNS[_TARGET])
    target = target or find_label(train, columns, fields, called=_TARGET)
    complete = any(set(find_fields(text)) <= set(train.columns) for text in inputs)
    for name in (target, *(() if complete else fields)):
        if name not in train.columns:
            raise InputError(
                f"{train.origin}: there is no column {name!r}; {nearest(name, train.columns)}"
            )

    def fill(record: Record, names: Sequence[str] | None) -> Record:
        text = fill_input(record, inputs)
        if text is None:
            raise InputError(
                f"{record.origin}: the row lacks a text of its input, {' or '.join(inputs)!r:.100}"
            )
        values = dict(record.values)
        values[_INPUT] = _take_out(text, settings)
        values[_TARGET] = _read_answer(record, target, names)
        if settings.instruction:
            values[_INSTRUCTION] = settings.instruction
        return Record(values, record.origin)

    added = (_INPUT, _TARGET, *((_INSTRUCTION,) if settings.instruction else ()))
    made: dict[str, RecordFile] = {}
    for split, file in files.items():
        names = label_names or file.class_names.get(target)
        records = bad_rows.read_each(
            file.origin, file.records, lambda record, names=names: fill(record, names)
        )
        known = tuple(dict.fromkeys((*file.columns, *added)))
        made[split] = replace(file, columns=known, records=tuple(records))
    return made, Columns(label=target, inputs=inputs)


def lacks_columns(file: RecordFile) -> bool:
    """Whether a file has neither inputs and answers by their usual names nor messages."""
    usual = chain.from_iterable(columns.values() for columns in Text2Text.other_columns)
    return not any(map(file.find, usual)) and not all(map(file.find, _TEXT_COLUMNS.values()))


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
    column = file.find(_TEXT_COLUMNS[_INPUT])
    if column is not None and columns.text is None:
        return (f"{{{column}}}",)
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
    if column in _TEXT_COLUMNS[_TARGET]:
        return value
    return read_label_name(value, record.origin)
