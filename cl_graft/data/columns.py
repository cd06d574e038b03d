"""The step from records to rows: which column is which, and which class a label means.

Of columns what the caller names goes first, then those of usual names, then what the columns hold,
if one alone can be meant.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from cl_graft.data.bad_rows import BadRows
from cl_graft.data.dataset_presets import Preset
from cl_graft.data.labels import (
    NUMBER,
    collect_class_names,
    has_no_label,
    read_label_name,
    read_labels,
    whole_number,
)
from cl_graft.data.record_files import Columns, Record, RecordFile
from cl_graft.data.text_files import find_fault
from cl_graft.errors import InputError, join_names, nearest
from cl_graft.kinds import KINDS
from cl_graft.kinds.rows import LABEL_COLUMNS, Row


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
    origin: str


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
            raise InputError(f"{file.origin}: the {split} split has no rows")
    train, numbers = files["train"], label_names is not None and not label_names
    text, text_pair = find_texts(train, columns, preset)
    column = find_label(train, columns, (text, text_pair), preset, numbers=numbers)
    if guessed := [
        f"{what} {name!r}"
        for what, name, asked in (("text", text, columns.text), ("label", column, columns.label))
        if asked is None and preset is None and not is_usual(name)
    ]:
        bad.notes.append(
            f"{train.origin}: chosen by what the columns hold: {join_names(guessed)}; if that is "
            "wrong, name them with text and label"
        )
    hidden: list[str] = []
    drafts: dict[str, list[_Draft]] = {}
    for split, file in files.items():
        if text not in file.columns:
            hint = find_missing_header(file) or nearest(text, file.columns)
            raise InputError(f"{file.origin}: there is no column {text!r}, as train has; {hint}")
        if split != "train" and all(has_no_label(r.values.get(column)) for r in file.records):
            bad.notes.append(
                f"{file.origin}: no row has a label in column {column!r}; the {split} split is "
                "left out"
            )
            hidden.append(split)
            continue
        labelled = _drop_unlabelled(file, column, bad)
        read = partial(_read_draft, text=text, text_pair=text_pair, label=column)
        drafts[split] = bad.read_each(file.origin, labelled, read)
    if label_names is None:
        label_names = train.class_names.get(column)
    spellings: Mapping[str, str] = {}
    alike = preset is not None and preset.pair == (text_pair is not None)
    if preset is not None and alike and _fits(label_names, drafts["train"], preset):
        label_names = preset.label_names if label_names is None else label_names
        spellings = preset.aliases
    declared = label_names is not None
    if label_names is None:
        drafts["train"] = bad.read_each(
            train.origin,
            drafts["train"],
            lambda d: replace(d, label=read_label_name(d.label, d.origin)),
        )
        names = [str(draft.label) for draft in drafts["train"]]
        label_names = collect_class_names(names, origin=train.origin, column=column)
    labels = read_labels(label_names, spellings, declared=declared)
    splits: dict[str, tuple[Row, ...]] = {}
    for split, of_split in drafts.items():
        rows = bad.read_each(
            files[split].origin,
            of_split,
            lambda d: Row(d.text, d.text_pair, labels.read(d.label, d.origin)),
        )
        splits[split] = tuple(rows)
    origin = Columns(text=text, text_pair=text_pair, label=column)
    return LabelledRows(splits, labels.names, origin, tuple(hidden))


def _drop_unlabelled(file: RecordFile, column: str, bad: BadRows) -> tuple[Record, ...]:
    """Drop the rows that the datasets library marks as unlabelled (SNLI has some)."""
    if column not in file.class_names:
        return file.records
    labelled = tuple(r for r in file.records if whole_number(r.values.get(column)) != -1)
    if len(labelled) < len(file.records):
        without = len(file.records) - len(labelled)
        bad.leave_out(file.origin, "without a label (−1)", rows=without)
    return labelled


def _read_draft(record: Record, *, text: str, text_pair: str | None, label: str) -> _Draft:
    pair = None if text_pair is None else _read_text(record, text_pair)
    text_value = _read_text(record, text)
    return _Draft(text_value, pair, _read_value(record, label), record.origin)


def _fits(declared: Sequence[str] | None, drafts: Sequence[_Draft], preset: Preset) -> bool:
    """Whether data have the labels of a preset: declared, or each of them in training rows."""
    if declared is not None:
        return {preset.aliases.get(name, name) for name in declared} == set(preset.label_names)
    labels = read_labels(preset.label_names, preset.aliases)
    seen: set[int | float] = set()
    others = 0
    for draft in drafts:
        try:
            seen.add(labels.read(draft.label, draft.origin))
        except InputError:
            others += 1
    return len(seen) >= len(preset.label_names) and others * 20 <= len(drafts)


def require_text(record: Record, column: str, value: object) -> str:
    """Return a value of a record if it is text."""
    if not isinstance(value, str):
        hint = "; its column is binary, so write it as text" if isinstance(value, bytes) else ""
        raise InputError(
            f"{record.origin}: column {column!r} must hold text, got {type(value).__name__}{hint}"
        )
    return value


def _read_value(record: Record, column: str) -> object:
    if column not in record.values:
        raise InputError(
            f"{record.origin}: there is no column {column!r}; {nearest(column, record.values)}"
        )
    value = record.values[column]
    if isinstance(value, float) and math.isnan(value):
        raise InputError(f"{record.origin}: column {column!r} is NaN, so its value is missing")
    if value is None or (isinstance(value, str) and not value.strip()):
        raise InputError(f"{record.origin}: column {column!r} is empty")
    return value


def _read_text(record: Record, column: str) -> str:
    value = require_text(record, column, _read_value(record, column))
    if fault := find_fault(value):
        raise InputError(f"{record.origin}: the text in column {column!r} {fault}")
    return value


_PAIRS = (
    ("text", "text_pair"),
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("question", "context"),
    ("question", "passage"),
    ("text1", "text2"),
)
_TEXTS = ("text", "sentence", "question", "content", "review")
_MORE_TEXTS = (
    *("message", "body", "tweet", "comment", "utterance", "query", "document", "post", "sms"),
    *("headline", "title", "subject", "description"),
)
_MORE_LABELS = (
    *("intent", "sentiment", "emotion", "topic", "queue", "rating", "stars", "score", "tag"),
    *("gold", "answer"),
)
_LABEL_WORDS = frozenset((*LABEL_COLUMNS, *_MORE_LABELS))
_OTHER_NAMES = ("id", "index", "date", "time", "name", "user", "lang", "language", "source", "task")
_PART_OF_A_NAME = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+")

_HEADER_ROWS = 500
_ALIKE = 0.9
_WORDS = 4

_MOST_CLASSES = 200
_FULL = 0.95
"""Share of the rows in which a column of labels has a value."""
_ROWS = 1000
_COUNTED = 100_000
_DIFFERENT = 0.2
"""Smallest share of different values of a column of texts."""
_LONGER = 3
"""Texts that are so many times longer than those of any other column are the ones meant."""


def find_texts(
    file: RecordFile, asked: Columns, preset: Preset | None = None
) -> tuple[str, str | None]:
    """Return the columns of the text and of the second one, None where there is none."""
    check_named(file, asked)
    if asked == Columns() and (fault := find_missing_header(file)):
        raise InputError(fault)
    if (usual := find_usual_texts(file, asked, preset)) is not None:
        return usual
    if fault := find_missing_header(file, sure=False):
        raise InputError(fault)
    lengths = _measure_texts(file, (asked.text_pair, asked.label))
    longest = sorted(lengths, key=lengths.__getitem__, reverse=True)
    if len(longest) == 1 or (longest and lengths[longest[0]] >= _LONGER * lengths[longest[1]]):
        return longest[0], asked.text_pair
    if longest:
        raise InputError(
            f"{file.origin}: which column holds the text, {_join_or(longest)}? Name it with text "
            "(--text)"
        )
    raise InputError(
        f"{file.origin}: no text column found among {join_names(file.columns) or 'none'}; name it "
        f"with text, or call it 'text'{_note_on_kinds(file)}{file.note_on_unread}"
    )


def find_usual_texts(
    file: RecordFile, asked: Columns, preset: Preset | None = None
) -> tuple[str, str | None] | None:
    """Return the columns of the texts that are named or have usual names, or None.

    A column that no row fills is no second text.
    """
    if asked.text is not None:
        return asked.text, asked.text_pair
    candidates: list[tuple[str, str | None]] = list(_PAIRS)
    candidates += [(name, None) for name in (*_TEXTS, *_MORE_TEXTS)]
    if preset is not None and preset.columns.text is not None:
        candidates.insert(0, (preset.columns.text, preset.columns.text_pair))
    for name, pair in candidates:
        text, second = _find_name(file, name), _find_name(file, asked.text_pair or pair)
        if text is None or text in (asked.text_pair, asked.label) or (pair and second is None):
            continue
        if name in _MORE_TEXTS and not _is_text(file, text):
            continue
        empty = second is None or all(r.values.get(second) is None for r in file.records)
        return text, None if empty and asked.text_pair is None else second
    return None


def find_label(
    file: RecordFile,
    asked: Columns,
    texts: Sequence[str | None],
    preset: Preset | None = None,
    *,
    numbers: bool = False,
    called: str = LABEL_COLUMNS[0],
) -> str:
    """Return the column of the label."""
    check_named(file, asked)
    if asked.label is not None:
        return asked.label
    for name in (*([preset.columns.label] if preset else ()), *LABEL_COLUMNS):
        if (column := _find_name(file, name)) is not None and column not in texts:
            return column
    counts = count_values(file, texts, numbers=numbers)
    for name in _MORE_LABELS:
        if (column := _find_name(file, name)) in counts:
            return str(column)
    named = [name for name in counts if _parts(name) & _LABEL_WORDS]
    if len(named) == 1:
        return named[0]
    if len(counts) == 1 and not numbers:
        return next(iter(counts))
    if counts:
        shown = _join_or([f"{name} ({values:,} values)" for name, values in counts.items()])
        raise InputError(
            f"{file.origin}: which column holds the label, {shown}? Name it with label (--label); "
            "several labels a row are a task of kind 'multi_label'"
        )
    raise InputError(
        f"{file.origin}: no label column found among {join_names(file.columns)}; name it with "
        f"label, or call it {called!r}{_note_on_kinds(file)}{file.note_on_unread}"
    )


def check_named(file: RecordFile, asked: Columns) -> None:
    """Refuse a named column that a file does not have."""
    for name in (asked.text, asked.text_pair, asked.label):
        if name is not None and name not in file.columns:
            hint = find_missing_header(file)
            raise InputError(
                f"{file.origin}: there is no column {name!r}; {hint or nearest(name, file.columns)}"
            )


def find_missing_header(file: RecordFile, *, sure: bool = True) -> str:
    """Say that the first line of a table looks like a row; empty where it does not.

    A field looks like a value if it is a number among numbers, or one of few values that return; if
    not `sure`, a sentence among sentences, too. One field that looks like a name (it is a known
    one, or numbers or few values stand below it) makes the line a header.
    """
    if not file.header or file.columns == tuple(map(str, range(len(file.columns)))):
        return ""
    rows = [record.values for record in file.records[:_HEADER_ROWS]]
    like: list[str] = []
    for name in file.columns:
        values = [str(row[name]).strip() for row in rows if row.get(name)]
        if _normalize(name) in _KNOWN:
            return ""
        if sum(map(_is_number, values)) >= max(2, _ALIKE * len(values)):
            same = _is_number(name)
        elif len(set(values)) <= min(_MOST_CLASSES, len(values) // 2):
            same = values.count(name) > 1
        else:
            long = sum(len(value.split()) >= _WORDS for value in values) >= len(values) / 2
            like += [name] if not sure and long and len(name.split()) >= _WORDS else []
            continue
        if not same:
            return ""
        like.append(name)
    if not like:
        return ""
    shown = like[0] if len(like[0]) <= 60 else f"{like[0][:57]}..."
    return (
        f"{file.header}: the line looks like a row and not like names of columns, as {shown!r} "
        f"looks like the values below it; put a line with the names of the {len(file.columns)} "
        "columns above it, such as text and label, or name the columns if it is the header"
    )


def is_usual(column: str) -> bool:
    """Whether a column of texts or labels is found by its name."""
    normal = _normalize(column)
    return normal in _KNOWN or bool(_parts(column) & _LABEL_WORDS)


def count_values(
    file: RecordFile, texts: Sequence[str | None], *, numbers: bool = False
) -> dict[str, int]:
    """Return the columns that may hold a label, with the number of their different values.

    They have a value in 19 of 20 rows, and 2 to 200 different ones, at most half as many as there
    are rows; those of `numbers` are numbers.
    """
    counts: dict[str, int] = {}
    rows = [record.values for record in file.records[:_COUNTED]]
    for column in file.columns:
        known = [row[column] for row in rows if row.get(column) not in (None, "")]
        single = all(isinstance(value, str | int | float) for value in known)
        if column in texts or not single or not known or len(known) < _FULL * len(rows):
            continue
        different = len({str(value) for value in known})
        few = all(map(_is_number, known)) if numbers else different <= _MOST_CLASSES
        if few and 1 < different <= (len(rows) if numbers else len(rows) // 2):
            counts[column] = different
    return counts


def _is_number(value: object) -> bool:
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return plain or bool(NUMBER.fullmatch(str(value).strip()))


def _find_name(file: RecordFile, name: str | None) -> str | None:
    """Return the column of a name, or the first that differs from it in case and marks alone."""
    if name in file.columns:
        return name
    return next((column for column in file.columns if _normalize(column) == name), None)


def _normalize(name: str) -> str:
    return re.sub(r"[\s_-]+", "_", name.strip()).casefold()


def _parts(name: str) -> set[str]:
    return {part.lower() for part in _PART_OF_A_NAME.findall(name)}


def _measure_texts(file: RecordFile, others: Sequence[str | None]) -> dict[str, float]:
    return {
        column: sum(map(len, values)) / len(values)
        for column in file.columns
        if column not in others and _is_text(file, column)
        for values in [_list_texts(file, column)]
    }


def _is_text(file: RecordFile, column: str) -> bool:
    known = [r.values.get(column) for r in file.records[:_ROWS]]
    values = _list_texts(file, column)
    if not values or len(values) < sum(value not in (None, "") for value in known):
        return False
    worded = sum(" " in value or _is_unspaced(value) for value in values)
    return 2 * worded >= len(values) and len(set(values)) >= _DIFFERENT * len(values)


def _is_unspaced(text: str) -> bool:
    """Whether a text may be of a script without blanks between words, such as Chinese."""
    return len(text) > 3 and sum(c >= "\u0e00" and c.isalpha() for c in text) > len(text) / 2


def _list_texts(file: RecordFile, column: str) -> list[str]:
    values = (record.values.get(column) for record in file.records[:_ROWS])
    return [v.strip() for v in values if isinstance(v, str) and v.strip() and not _is_number(v)]


def _join_or(names: Sequence[str]) -> str:
    return " or ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _note_on_kinds(file: RecordFile) -> str:
    """Return the end of a sentence on a missing column: kinds that lack but one."""
    notes = ""
    for kind in KINDS.values():
        lacking = [u for u in kind.columns.values() if not any(name in file.columns for name in u)]
        present = {name for usual in kind.columns.values() for name in usual} & set(file.columns)
        if len(lacking) == 1 < len(kind.columns) and not present <= set(_TEXTS):
            notes += f"; a task of kind {kind.name!r} needs a column {lacking[0][0]!r}, too"
    return notes


_KNOWN = frozenset(
    {
        *(name for pair in _PAIRS for name in pair),
        *(*_TEXTS, *_MORE_TEXTS, *LABEL_COLUMNS, *_MORE_LABELS, *_OTHER_NAMES),
    }
)
"""Usual names of columns."""
