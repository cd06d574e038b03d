"""The rows of every split of a data set: which files or tables hold them, and what they mean.

Read are one file, a folder of train / dev / test files (and a `meta.json` that declares
`label_names` and the `positive` one), a data set saved or of the hub, and tables of a program.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from cl_graft.data.bad_rows import BadRows
from cl_graft.data.columns import LabelledRows, to_rows
from cl_graft.data.dataset_presets import Preset
from cl_graft.data.hub_datasets import is_saved_dataset, load_hub_dataset, load_saved_dataset
from cl_graft.data.kind_rows import (
    choose_kind,
    fill_label_lists,
    fill_text_columns,
    has_label_lists,
    lacks_columns,
    read_kind_rows,
)
from cl_graft.data.record_files import (
    SUFFIXES,
    Columns,
    Record,
    RecordFile,
    add_paths,
    collect_records,
    explain_unread_kind,
    read_dataset,
    read_records,
    strip_suffix,
)
from cl_graft.data.task_settings import TaskSettings
from cl_graft.data.text_files import Reading
from cl_graft.errors import InputError, join_names, nearest
from cl_graft.kinds import KINDS
from cl_graft.kinds.multi_label import MultiLabel
from cl_graft.kinds.text2text import Text2Text

_SPLITS: Mapping[str, tuple[str, ...]] = {
    "train": ("train", "training"),
    "dev": ("dev", "validation", "valid", "val", "eval", "validation_matched"),
    "test": ("test",),
}

_TABLES = (
    "a pandas DataFrame, a Dataset or DatasetDict of the datasets library, a list of dictionaries, "
    "or a dictionary of these by split"
)


@dataclass(frozen=True)
class Tables:
    """Rows that a program holds: one table, or tables by split, and a name for messages."""

    name: str
    given: object


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFiles:
    """Records by split, and what the folder's `meta.json` declares, if anything.

    `chosen` says whether some records were chosen by the values of columns.
    """

    records: Mapping[str, RecordFile]
    bad_rows: BadRows
    label_names: Sequence[str] | None = None
    positive: str | None = None
    span_types: Sequence[str] | None = None
    chosen: bool = False


def read_files(source: Path | str | Tables, reading: Reading, bad_rows: BadRows) -> DataFiles:
    """Read the records of every split of a path, of a data set of the hub, or of tables."""
    meta: Mapping[str, Any] = {}
    if isinstance(source, Tables):
        records = _read_tables(source, reading, bad_rows)
    elif isinstance(source, str):
        loaded = load_hub_dataset(source)
        records = _read_splits(loaded, source, reading, bad_rows)
    else:
        if not source.exists():
            raise InputError(f"{source}: there is no such file or folder")
        meta = _read_meta(source / "meta.json") if source.is_dir() else {}
        records = _read_path(source, reading, bad_rows)
    return DataFiles(
        records={split: _choose(file, reading.where) for split, file in records.items()},
        bad_rows=bad_rows,
        chosen=bool(reading.where),
        **meta,
    )


def make_rows(
    files: DataFiles, settings: TaskSettings, *, preset: Preset | None = None
) -> LabelledRows:
    """Turn the records of a data set into rows; see `cl_graft.data.columns.to_rows`.

    Of chosen records, labels that none of them has are no labels of the task. Labels of data that
    are named text to text, and have no such columns, become answers.
    """
    records, bad, kind = files.records, files.bad_rows, settings.kind
    columns = Columns(text=settings.text, text_pair=settings.text_pair, label=settings.label)
    names: Sequence[str] | None = settings.label_names
    if names is None:
        names = () if kind == "regression" else files.label_names
    plain, origin = columns == Columns(), Columns()
    made_of_texts = settings.instruction is not None or settings.input is not None
    if made_of_texts or (kind == Text2Text.name and lacks_columns(records["train"])):
        records, origin = fill_text_columns(records, columns, names, settings, bad)
        kind, columns, names, plain = Text2Text.name, Columns(), None, True
    row_kind = None
    if kind == MultiLabel.name:
        row_kind = KINDS.find(MultiLabel.name)
    elif plain or kind is not None:
        row_kind = choose_kind(records["train"], kind)
        if row_kind is None and kind is None and has_label_lists(records["train"]):
            row_kind = KINDS.find(MultiLabel.name)
    if isinstance(row_kind, MultiLabel):
        separator = settings.label_separator or "|"
        records, names, origin = fill_label_lists(records, columns, names, separator, bad)
        plain = True
    if row_kind is None:
        rows = to_rows(records, columns=columns, label_names=names, preset=preset, bad=bad)
        if files.chosen and settings.label_names is None:
            rows = _drop_unused_labels(rows)
        return replace(rows, positive=files.positive, kind=kind or "")
    if not plain:
        raise InputError(
            f"a task of kind {row_kind.name!r} is read from columns of usual names, such as "
            f"{join_names(row_kind.columns)}; text, text_pair and label name those of other kinds"
        )
    given = {"label_names": names, "span_types": files.span_types}
    declared = {name: own_names for name, own_names in given.items() if own_names}
    return replace(read_kind_rows(row_kind, records, declared=declared, bad=bad), columns=origin)


def has_rows(path: Path) -> bool:
    """Whether `path` is a file or folder that `read_files` would try to read."""
    if path.is_file():
        return strip_suffix(path.name) is not None
    return path.is_dir() and (is_saved_dataset(path) or "train" in _find_candidates(path))


def _read_path(path: Path, reading: Reading, bad: BadRows) -> dict[str, RecordFile]:
    if path.is_file():
        return {"train": read_records(path, reading=reading, bad_rows=bad)}
    if not path.is_dir():
        raise InputError(f"{path}: neither a file nor a folder but a device, a pipe or a socket")
    if is_saved_dataset(path):
        return _read_splits(load_saved_dataset(path), str(path), reading, bad)
    files = _find_candidates(path)
    for split, (first, *more) in files.items():
        if more:
            raise InputError(
                f"{path}: both {first.name} and {more[0].name} are {split} files; keep one"
            )
    if "train" not in files:
        others = sorted(
            p for p in path.iterdir() if _find_split(p.name.split(".", 1)[0]) == "train"
        )
        there = f"; {explain_unread_kind(others[0])}" if others else ""
        raise InputError(
            f"{path}: the folder has no train file (train.jsonl, train.csv, …; "
            f"formats: {', '.join(SUFFIXES)}) and is no data set saved with save_to_disk{there}"
        )
    return {
        split: read_records(file, reading=reading, bad_rows=bad) for split, [file] in files.items()
    }


def _read_tables(source: Tables, reading: Reading, bad: BadRows) -> dict[str, RecordFile]:
    """Read the tables of a program, by split; a table alone holds training rows."""
    given = source.given
    if not isinstance(given, Mapping):
        return {"train": _read_table(given, source.name, reading, bad)}
    is_checked = not _is_of("datasets", given)
    for name, table in given.items() if is_checked else ():
        if _find_split(str(name)) is None:
            known = nearest(str(name), chain(*_SPLITS.values()))
            raise InputError(f"{source.name}: {name!r} is no split; {known}")
        if isinstance(table, list) and table and not isinstance(table[0], Mapping):
            raise InputError(
                f"{source.name}: the rows of {name!r} must be dictionaries by column, got "
                f"{type(table[0]).__name__}"
            )
    return _read_splits(given, source.name, reading, bad)


def _read_splits(
    tables: Mapping[str, Any], origin: str, reading: Reading, bad: BadRows
) -> dict[str, RecordFile]:
    names: dict[str, str] = {}
    for name in tables:
        split = _find_split(name)
        if split in names:
            raise InputError(
                f"{origin}: both {origin}[{names[split]}] and {origin}[{name}] are {split} splits; "
                "keep one"
            )
        if split is not None:
            names[split] = name
    if "train" not in names:
        raise InputError(f"{origin}: there is no train split; there are {', '.join(tables)}")
    return {
        split: _read_table(tables[name], f"{origin}[{name}]", reading, bad)
        for split, name in names.items()
    }


def _read_table(table: Any, origin: str, reading: Reading, bad: BadRows) -> RecordFile:
    if _is_of("datasets", table) and hasattr(table, "select_columns") and hasattr(table, "__len__"):
        return collect_records(origin, read_dataset(table, origin, reading), bad)
    records = tuple(
        Record(add_paths(values), f"{origin}: row {number} (index {index!r})")
        for number, (index, values) in enumerate(_list_rows(table, origin), start=1)
    )
    bad.refuse_none_left(origin, len(records))
    columns = dict.fromkeys(name for record in records for name in record.values)
    return RecordFile(origin, tuple(filter(str.strip, columns)), records, {})


def _list_rows(table: Any, origin: str) -> Iterator[tuple[object, dict[str, object]]]:
    if _is_of("pandas", table) and hasattr(table, "itertuples") and hasattr(table, "columns"):
        names = [str(name) for name in table.columns]
        if len(set(names)) != len(names):
            raise InputError(f"{origin}: the table has a column twice: {join_names(names)}")
        whole = table.astype(object).where(table.notna(), None)
        rows = zip(whole.index.tolist(), whole.itertuples(index=False, name=None), strict=True)
        for index, values in rows:
            yield index, dict(zip(names, map(_to_plain, values), strict=True))
    elif isinstance(table, list | tuple):
        for index, values in enumerate(table):
            if not isinstance(values, Mapping):
                raise InputError(
                    f"{origin}: row {index + 1} (index {index}) must be a dictionary by column, "
                    f"got {type(values).__name__}"
                )
            yield index, {str(name): _to_plain(value) for name, value in values.items()}
    else:
        raise InputError(f"{origin}: expected {_TABLES}; got {type(table).__name__}")


def _to_plain(value: Any) -> object:
    return value.tolist() if hasattr(value, "tolist") else value


def _is_of(library: str, value: object) -> bool:
    """Whether a value's class, or one that it extends, is of a library, which is not imported."""
    return any(cls.__module__.split(".")[0] == library for cls in type(value).__mro__)


def _find_candidates(folder: Path) -> dict[str, list[Path]]:
    candidates: dict[str, list[Path]] = {}
    for path in sorted(folder.iterdir()):
        stem = strip_suffix(path.name)
        split = _find_split(stem) if stem else None
        if split is not None:
            candidates.setdefault(split, []).append(path)
    return candidates


def _find_split(name: str) -> str | None:
    return next((split for split, names in _SPLITS.items() if name.lower() in names), None)


def _choose(file: RecordFile, where: Mapping[str, str]) -> RecordFile:
    records = file.records
    for column, value in where.items():
        if column not in file.columns:
            raise InputError(
                f"{file.origin}: there is no column {column!r}; {nearest(column, file.columns)}"
            )
        held = dict.fromkeys(str(record.values.get(column)) for record in records)
        if value not in held:
            raise InputError(
                f"{file.origin}: no row has {value!r} in column {column!r}; {nearest(value, held)}"
            )
        records = tuple(r for r in records if str(r.values.get(column)) == value)
    return replace(file, records=records)


def _drop_unused_labels(rows: LabelledRows) -> LabelledRows:
    used = sorted({int(row.label) for of_split in rows.splits.values() for row in of_split})
    if not rows.label_names or len(used) == len(rows.label_names):
        return rows
    numbers = {label: number for number, label in enumerate(used)}
    splits = {
        split: tuple(replace(row, label=numbers[int(row.label)]) for row in of_split)
        for split, of_split in rows.splits.items()
    }
    names = tuple(rows.label_names[label] for label in used)
    return replace(rows, splits=splits, label_names=names)


def _read_meta(path: Path) -> dict[str, Any]:
    """Read what a folder's `meta.json` declares: label names, the positive one, and span types."""
    if not path.is_file():
        return {}
    try:
        meta = json.loads(path.read_text(encoding="utf-8-sig"))
        declared = {name: meta.get(name) for name in ("label_names", "positive", "span_types")}
    except (ValueError, AttributeError, RecursionError) as error:
        raise InputError(f"{path}: not a readable JSON object ({error})") from None
    for name, given in declared.items():
        if name == "positive":
            is_right, what = isinstance(given, str), "a label's name"
        else:
            texts = isinstance(given, list) and all(isinstance(text, str) for text in given)
            is_right, what = texts, "a list of texts"
        if given is not None and not is_right:
            raise InputError(f"{path}: {name} must be {what}, got {given!r}")
    return declared
