"""From records to rows: which column is which, and which class a label means.

Columns are named by the caller, or found among the usual names. Labels are class ids, or label
names where names are declared (by the caller, by the file, by a preset); where none are declared
the sorted distinct labels become the names. The splits of a task are read together, so that all of
them agree on classes.
"""

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cl_graft.errors import InputError, nearest
from cl_graft.tasks.records import Record, RecordFile
from cl_graft.tasks.task import Row

__all__ = ["Columns", "LabelledRows", "Labels", "read_labels", "to_rows"]

_logger = logging.getLogger(__name__)

_TEXTS: tuple[tuple[str, str | None], ...] = (
    ("text", "text_pair"),
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("text1", "text2"),
    ("text", None),
    ("sentence", None),
    ("question", None),
    ("content", None),
    ("review", None),
)
_LABELS = ("label", "labels", "class", "category", "target", "coarse_label", "label_text")


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The names of a file's columns; None where they are to be found, or for no second text."""

    text: str | None = None
    text_pair: str | None = None
    label: str | None = None


@dataclass(frozen=True, slots=True)
class LabelledRows:
    """The rows of every split that has labels, the label names (empty: regression), the columns."""

    splits: Mapping[str, tuple[Row, ...]]
    label_names: tuple[str, ...]
    columns: Columns
    without_labels: tuple[str, ...]


def to_rows(
    files: Mapping[str, RecordFile],
    *,
    columns: Columns,
    label_names: Sequence[str] | None,
    preset_columns: Columns | None = None,
    preset_names: Sequence[str] | None = None,
    aliases: Mapping[str, str] | None = None,
) -> LabelledRows:
    """Turn the records of all splits into rows.

    Args:
        files: Records by split; "train" is among them.
        columns: What the caller named.
        label_names: What the caller or a `meta.json` declared; empty means regression.
        preset_columns: Columns to look for before the usual names.
        preset_names: Label names to take where nobody declared any.
        aliases: Other spellings of label names: spelling in the data to name.

    Returns:
        The rows. A split other than "train" whose labels are all -1 or missing (the hidden test
        labels of a benchmark) is left out and named in `without_labels`.

    Raises:
        InputError: At an unknown column, an empty text, or a label that is no declared one.
    """
    for split, file in files.items():
        if not file.records:
            raise InputError(f"{file.place}: the {split} split has no rows")
    found = _find_columns(files["train"], columns, preset_columns)
    label_column = found.label or ""
    hidden = tuple(
        split
        for split, file in files.items()
        if split != "train" and all(_no_label(r, label_column) for r in file.records)
    )
    shown = {split: file for split, file in files.items() if split not in hidden}
    if label_names is None:
        label_names = files["train"].class_names.get(label_column, preset_names)
    found_names = None if label_names is not None else _distinct_labels(shown, label_column)
    labels = read_labels(label_names or found_names or (), aliases or {}, declared=not found_names)
    splits = {
        split: tuple(_row(r, found, labels) for r in _labelled(file, label_column))
        for split, file in shown.items()
    }
    return LabelledRows(splits, labels.names, found, hidden)


@dataclass(frozen=True, slots=True)
class Labels:
    """Label names, and the class id of each spelling.

    Where names are `declared`, a number is a class id; else it is itself a name ("3" for 3).
    """

    names: tuple[str, ...]
    ids: Mapping[str, int]
    declared: bool

    def read(self, value: object, place: str) -> int | float:
        """Read one label: a number for a regression, else a class id."""
        if not self.names:
            return _number(value, place)
        if isinstance(value, bool):
            value = str(value).lower()
        if isinstance(value, str):
            value = value.strip()
            if value in self.ids:
                return self.ids[value]
        class_id = _integer(value)
        if not self.declared and class_id is not None:
            return self.ids[str(class_id)]
        if class_id is None and isinstance(value, str):
            raise InputError(
                f"{place}: label {value!r} is not among the declared label names; "
                f"{nearest(value, self.names)}"
            )
        if class_id is None or not 0 <= class_id < len(self.names):
            raise InputError(
                f"{place}: label {value!r} is outside the declared {len(self.names)} labels: "
                f"expected 0 to {len(self.names) - 1}, or one of {', '.join(self.names)}"
            )
        return class_id


def read_labels(
    names: Sequence[str], aliases: Mapping[str, str], *, declared: bool = True
) -> Labels:
    """Prepare to read labels named `names`; an alias stands for the name that it maps to.

    Raises:
        InputError: If two names are the same.
    """
    own = tuple(aliases.get(str(name), str(name)) for name in names)
    if len(set(own)) != len(own) or len(own) == 1:
        raise InputError(f"two or more different label names are needed, got {list(own)}")
    ids = {name: class_id for class_id, name in enumerate(own)}
    for alias, name in aliases.items():
        # A number as alias renames a declared name only; in a row it may as well be a class id.
        if name in ids and _integer(alias) is None:
            ids.setdefault(alias, ids[name])
    return Labels(own, ids, declared)


def _find_columns(file: RecordFile, asked: Columns, preset: Columns | None) -> Columns:
    for name in (asked.text, asked.text_pair, asked.label):
        if name is not None and name not in file.columns:
            raise InputError(
                f"{file.place}: there is no column {name!r}; {nearest(name, file.columns)}"
            )
    text, text_pair = asked.text, asked.text_pair
    if text is None:
        candidates = [*_preset_texts(preset), *_TEXTS]
        if text_pair is not None:
            candidates = [(first, text_pair) for first, _ in candidates if first != text_pair]
        text, text_pair = _first_pair(file, candidates)
    labels = [asked.label] if asked.label else [preset.label] if preset and preset.label else []
    labels += [] if asked.label else list(_LABELS)
    label = next((name for name in labels if name in file.columns), None)
    if label is None:
        raise InputError(
            f"{file.place}: no label column found among {', '.join(file.columns)}; "
            "say which one it is"
        )
    return Columns(text=text, text_pair=text_pair, label=label)


def _preset_texts(preset: Columns | None) -> list[tuple[str, str | None]]:
    return [(preset.text, preset.text_pair)] if preset and preset.text else []


def _first_pair(
    file: RecordFile, candidates: Sequence[tuple[str, str | None]]
) -> tuple[str, str | None]:
    for text, text_pair in candidates:
        if text in file.columns and (text_pair is None or text_pair in file.columns):
            if text_pair and all(r.values.get(text_pair) is None for r in file.records):
                return text, None
            return text, text_pair
    raise InputError(
        f"{file.place}: no text column found among {', '.join(file.columns)}; say which one it is"
    )


def _labelled(file: RecordFile, column: str) -> tuple[Record, ...]:
    """Drop the rows that the datasets library marks as unlabelled (SNLI has some)."""
    if column not in file.class_names:
        return file.records
    labelled = tuple(r for r in file.records if _integer(r.values.get(column)) != -1)
    if len(labelled) < len(file.records):
        _logger.warning(
            "%s: left out %d rows without a label", file.place, len(file.records) - len(labelled)
        )
    return labelled


def _row(record: Record, columns: Columns, labels: Labels) -> Row:
    pair = None if columns.text_pair is None else _text(record, columns.text_pair)
    text = _text(record, columns.text or "")
    return Row(text, pair, labels.read(_value(record, columns.label or ""), record.place))


def _value(record: Record, column: str) -> object:
    if column not in record.values:
        raise InputError(
            f"{record.place}: there is no column {column!r}; {nearest(column, record.values)}"
        )
    value = record.values[column]
    if value is None or (isinstance(value, float) and math.isnan(value)):
        raise InputError(f"{record.place}: column {column!r} has no value")
    return value


def _text(record: Record, column: str) -> str:
    value = _value(record, column)
    if not isinstance(value, str):
        raise InputError(
            f"{record.place}: column {column!r} must hold text, got {type(value).__name__}"
        )
    if not value.strip():
        raise InputError(f"{record.place}: the text in column {column!r} is empty")
    return value


def _no_label(record: Record, column: str) -> bool:
    value = record.values.get(column)
    return value is None or _integer(value) == -1


def _integer(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            return None
    return None


def _number(value: object, place: str) -> float:
    try:
        number = float(value) if isinstance(value, (int, float, str)) else math.nan
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"{place}: label {value!r} is not a number, as a regression needs")
    return number


def _distinct_labels(files: Mapping[str, RecordFile], column: str) -> tuple[str, ...]:
    values = [
        (_value(record, column), record.place) for file in files.values() for record in file.records
    ]
    distinct: set[str] = set()
    for value, place in values:
        if isinstance(value, bool):
            distinct.add(str(value).lower())
        elif isinstance(value, str) and _integer(value) is None:
            distinct.add(value.strip())
        elif (class_id := _integer(value)) is not None:
            distinct.add(str(class_id))
        else:
            raise InputError(
                f"{place}: label {value!r} is neither a name nor a whole number; "
                "declare no label names (an empty list) for a regression"
            )
    place = files["train"].place
    if len(distinct) < 2:
        raise InputError(
            f"{place}: all rows have the same label {next(iter(distinct))!r} in column {column!r}"
        )
    if len(distinct) > max(20, len(values) // 2):
        raise InputError(
            f"{place}: column {column!r} has {len(distinct)} different values in {len(values)} "
            "rows: that is no class label; name the label column, or declare the label names"
        )
    numeric = all(_integer(value) is not None for value in distinct)
    # Numbers sort as numbers: 2 before 10.
    return tuple(sorted(distinct, key=int) if numeric else sorted(distinct))
