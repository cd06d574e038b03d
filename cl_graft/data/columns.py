"""The step from records to rows: which column is which, and which class a label means."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from cl_graft.data.bad_rows import BadRows
from cl_graft.data.column_choice import (
    find_label,
    find_missing_header,
    find_texts,
    is_usual,
)
from cl_graft.data.labels import (
    collect_class_names,
    has_no_label,
    read_label_name,
    read_labels,
    whole_number,
)
from cl_graft.data.presets import Preset
from cl_graft.data.record_files import Columns, Record, RecordFile
from cl_graft.data.text_files import find_fault
from cl_graft.errors import InputError, join_names, nearest
from cl_graft.kinds.rows import Row


@dataclass(frozen=True, slots=True)
class LabelledRows:
    """Rows by split; without label names they are of a regression.

    `without_labels` are splits that were left out, `positive` is the label that the data declare as
    the positive one, `kind` is empty for a classification or a regression, and `fields` are further
    ones of the `TextTask`.
    """

    splits: Mapping[str, tuple[Row, ...]]
    label_names: tuple[str, ...]
    columns: Columns
    without_labels: tuple[str, ...] = ()
    positive: str | None = None
    kind: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Draft:
    """A row whose label is as the file has it."""

    text: str
    text_pair: str | None
    label: object
    place: str


def to_rows(
    files: Mapping[str, RecordFile],
    *,
    columns: Columns,
    label_names: Sequence[str] | None,
    preset: Preset | None,
    bad: BadRows,
) -> LabelledRows:
    """Turn the records of all splits into rows.

    The label names of a preset are taken where nobody declared any and the training rows fit it:
    as many texts, every class, and at most one label in twenty that is none of them (a fault). A
    split other than "train" whose labels are all -1 or missing (the hidden test labels of a
    benchmark) is left out and named in `without_labels`. Without names the task is a regression.
    """
    for split, file in files.items():
        if not file.records:
            raise InputError(f"{file.place}: the {split} split has no rows")
    train, numbers = files["train"], label_names is not None and not label_names
    text, text_pair = find_texts(train, columns, preset)
    column = find_label(train, columns, (text, text_pair), preset, numbers=numbers)
    if guessed := [
        f"{what} {name!r}"
        for what, name, asked in (("text", text, columns.text), ("label", column, columns.label))
        if asked is None and preset is None and not is_usual(name)
    ]:
        bad.notes.append(
            f"{train.place}: chosen by what the columns hold: {join_names(guessed)}; if that is "
            "wrong, name them with text and label"
        )
    hidden: list[str] = []
    drafts: dict[str, list[_Draft]] = {}
    for split, file in files.items():
        if text not in file.columns:
            hint = find_missing_header(file) or nearest(text, file.columns)
            raise InputError(f"{file.place}: there is no column {text!r}, as train has; {hint}")
        if split != "train" and all(has_no_label(r.values.get(column)) for r in file.records):
            bad.notes.append(
                f"{file.place}: no row has a label in column {column!r}; the {split} split is left "
                "out"
            )
            hidden.append(split)
            continue
        labelled = _drop_unlabelled(file, column, bad)
        read = partial(_read_draft, text=text, text_pair=text_pair, label=column)
        drafts[split] = bad.read_each(file.place, labelled, read)
    if label_names is None:
        label_names = train.class_names.get(column)
    spellings: Mapping[str, str] = {}
    alike = preset is not None and preset.pair == (text_pair is not None)
    if preset is not None and alike and _fits(label_names, drafts["train"], preset):
        label_names = preset.label_names if label_names is None else label_names
        spellings = preset.aliases
    declared = label_names is not None
    if label_names is None:
        drafts["train"] = bad.read_each(train.place, drafts["train"], _name_label)
        names = [str(draft.label) for draft in drafts["train"]]
        label_names = collect_class_names(names, place=train.place, column=column)
    labels = read_labels(label_names, spellings, declared=declared)
    splits: dict[str, tuple[Row, ...]] = {}
    for split, own in drafts.items():
        rows = bad.read_each(
            files[split].place,
            own,
            lambda d: Row(d.text, d.text_pair, labels.read(d.label, d.place)),
        )
        splits[split] = tuple(rows)
    origin = Columns(text=text, text_pair=text_pair, label=column)
    return LabelledRows(splits, labels.names, origin, tuple(hidden))


def _name_label(draft: _Draft) -> _Draft:
    return replace(draft, label=read_label_name(draft.label, draft.place))


def _drop_unlabelled(file: RecordFile, column: str, bad: BadRows) -> tuple[Record, ...]:
    """Drop the rows that the datasets library marks as unlabelled (SNLI has some)."""
    if column not in file.class_names:
        return file.records
    labelled = tuple(r for r in file.records if whole_number(r.values.get(column)) != -1)
    if len(labelled) < len(file.records):
        without = len(file.records) - len(labelled)
        bad.leave_out(file.place, "without a label (−1)", rows=without)
    return labelled


def _read_draft(record: Record, *, text: str, text_pair: str | None, label: str) -> _Draft:
    pair = None if text_pair is None else _read_text(record, text_pair)
    own = _read_text(record, text)
    return _Draft(own, pair, _read_value(record, label), record.place)


def _fits(declared: Sequence[str] | None, drafts: Sequence[_Draft], preset: Preset) -> bool:
    """Whether data have the labels of a preset: declared, or each of them in training rows."""
    if declared is not None:
        return {preset.aliases.get(name, name) for name in declared} == set(preset.label_names)
    labels = read_labels(preset.label_names, preset.aliases)
    seen: set[int | float] = set()
    others = 0
    for draft in drafts:
        try:
            seen.add(labels.read(draft.label, draft.place))
        except InputError:
            others += 1
    return len(seen) >= len(preset.label_names) and others * 20 <= len(drafts)


def require_text(record: Record, column: str, value: object) -> str:
    """Return a value of a record if it is text."""
    if not isinstance(value, str):
        hint = "; its column is binary, so write it as text" if isinstance(value, bytes) else ""
        raise InputError(
            f"{record.place}: column {column!r} must hold text, got {type(value).__name__}{hint}"
        )
    return value


def _read_value(record: Record, column: str) -> object:
    if column not in record.values:
        raise InputError(
            f"{record.place}: there is no column {column!r}; {nearest(column, record.values)}"
        )
    value = record.values[column]
    if isinstance(value, float) and math.isnan(value):
        raise InputError(f"{record.place}: column {column!r} is NaN, so its value is missing")
    if value is None or (isinstance(value, str) and not value.strip()):
        raise InputError(f"{record.place}: column {column!r} is empty")
    return value


def _read_text(record: Record, column: str) -> str:
    value = require_text(record, column, _read_value(record, column))
    if fault := find_fault(value):
        raise InputError(f"{record.place}: the text in column {column!r} {fault}")
    return value
