"""Rows of kinds that have columns of their own, such as words and tags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from cl_graft.data.bad_rows import BadRows
from cl_graft.data.columns import LabelledRows
from cl_graft.data.record_files import Columns, Record, RecordFile
from cl_graft.data.text_files import find_fault
from cl_graft.errors import InputError, join_names, nearest
from cl_graft.kinds import KINDS, ColumnError, Kind, Row

__all__ = ["choose_kind", "read_kind_rows"]


def choose_kind(file: RecordFile, named: str | None) -> Kind | None:
    """Return the kind whose columns a file has; None for a classification or a regression.

    Args:
        file: The training records.
        named: Kind that the caller named; None means that of the columns.

    Raises:
        InputError: If there is no such kind, or the file lacks one of its columns.
    """
    if named is not None:
        kind = KINDS.find(named)
        missing = [usual for usual in kind.columns.values() if _find(file, usual) is None]
        if missing and _choose_columns(kind, file) is None:
            raise InputError(
                f"{file.place}: a task of kind {named!r} needs a column {' or '.join(missing[0])}, "
                f"found are {join_names(file.columns) or 'none'}{file.note_on_unread}"
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
    bad_rows: BadRows | None = None,
) -> LabelledRows:
    """Turn the records of all splits into rows of a kind.

    Args:
        kind: The kind.
        files: Records by split; ``"train"`` is among them.
        declared: Names that the data or the caller declare, such as ``"span_types"``.
        bad_rows: Collects rows that cannot be used; None means they are errors.

    Raises:
        InputError: With file and line, if something is wrong with a row.
    """
    bad = bad_rows or BadRows()
    own = _choose_columns(kind, files["train"]) or kind.columns
    drafts: dict[str, list[tuple[Any, str]]] = {}
    hidden: list[str] = []
    for split, file in files.items():
        usual = {**own, **kind.optional}
        columns = {name: _find(file, names) for name, names in usual.items()}
        target = own.get(kind.target_column, ())
        if split != "train" and target and _has_no_answers(file, columns[kind.target_column]):
            bad.notes.append(
                f"{file.place}: no row has an answer in column "
                f"{columns[kind.target_column] or target[0]!r}; the {split} split is left out"
            )
            hidden.append(split)
            continue
        read = partial(_read, kind, columns, frozenset(own))
        drafts[split] = bad.read_each(file.place, file.records, read)
        bad.refuse_none_left(file.place, len(drafts[split]))
    made, fields = kind.make_rows(drafts, declared)
    splits: dict[str, tuple[Row, ...]] = {}
    for split, rows in made.items():
        place = files[split].place
        splits[split] = tuple(bad.read_each(place, rows, _unwrap))
        bad.refuse_none_left(place, len(splits[split]))
    names = fields.pop("label_names", ())
    return LabelledRows(splits, names, Columns(), tuple(hidden), kind=kind.name, fields=fields)


def _find(file: RecordFile, names: Sequence[str]) -> str | None:
    return next((name for name in names if name in file.columns), None)


def _choose_columns(kind: Kind, file: RecordFile) -> Mapping[str, tuple[str, ...]] | None:
    """Return the columns of a kind that a file has all of; None if it has not."""
    for own in (kind.columns, *kind.other_columns):
        if all(_find(file, usual) for usual in own.values()):
            return own
    return None


def _read(
    kind: Kind, columns: Mapping[str, str | None], needed: frozenset[str], record: Record
) -> tuple[Any, str]:
    for name, column in columns.items():
        if column is not None and column not in record.values and name in needed:
            raise InputError(
                f"{record.place}: there is no column {column!r}; {nearest(column, record.values)}"
            )
    values = {
        name: record.values[column]
        for name, column in columns.items()
        if column is not None and column in record.values
    }
    for name, value in values.items():
        if fault := _find_fault(value):
            raise InputError(f"{record.place}: the text in column {columns[name]!r} {fault}")
    try:
        return kind.read(values, record.place), record.place
    except ColumnError as error:
        raise InputError(error.rename(columns.get(error.column) or error.column)) from None


def _has_no_answers(file: RecordFile, column: str | None) -> bool:
    """Whether a file has rows, and none of them has an answer, as hidden test rows have none."""
    values = [None if column is None else one.values.get(column) for one in file.records]
    return bool(values) and not any(map(_is_answer, values))


def _is_answer(value: object) -> bool:
    """Whether a value is more than an empty text, an empty list, or lists that are empty."""
    if isinstance(value, Mapping):
        return any(map(_is_answer, value.values()))
    return value not in (None, "", [], ())


def _find_fault(value: object) -> str | None:
    """Say what is wrong with a text in a value; the kind refuses texts that are empty.

    The parts of a list are one text, as words are of a sentence.
    """
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, Mapping):
            left += one.values()
        elif isinstance(one, list | tuple):
            texts = all(isinstance(part, str) for part in one)
            left += [" ".join(map(str, one))] if texts else one
        elif isinstance(one, str) and one.strip() and (fault := find_fault(one)):
            return fault
    return None


def _unwrap(row: Row | InputError) -> Row:
    if isinstance(row, InputError):
        raise row
    return row
