"""The readers of labelled rows: from a path or a hub name to the rows of every split.

One file, a folder of train / dev / test files (beside them an optional `meta.json` that declares
`label_names` and the `positive` one), a data set saved with `save_to_disk` and one of the hub are
read in two steps: to records with their place (`cl_graft.data.record_files`,
`cl_graft.data.huggingface`), and to rows (`cl_graft.data.columns`). `load_task` is apart from them:
it decides what serves as dev and test where a split is missing.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from cl_graft.data.bad_rows import BadRows
from cl_graft.data.columns import LabelledRows, to_rows
from cl_graft.data.huggingface import (
    is_saved_dataset,
    read_dataset,
    read_hub_dataset,
    read_saved_dataset,
)
from cl_graft.data.json_text import add_paths
from cl_graft.data.kind_rows import LabelLists, choose_kind, has_label_lists, read_kind_rows
from cl_graft.data.presets import Preset
from cl_graft.data.record_files import (
    SUFFIXES,
    Columns,
    Record,
    RecordFile,
    collect_records,
    drop_headers,
    explain_unread_kind,
    is_record_file,
    read_records,
    strip_suffix,
)
from cl_graft.data.text_columns import TextColumns, lacks_columns
from cl_graft.data.text_files import Reading
from cl_graft.errors import InputError, join_names, nearest
from cl_graft.kinds import KINDS, Kind
from cl_graft.kinds.multi_label import MultiLabel
from cl_graft.kinds.text2text import Text2Text

__all__ = [
    "Tables",
    "explain_missing",
    "has_rows",
    "read_once",
    "read_rows",
    "read_train_records",
]

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
    """Rows that a program holds.

    Attributes:
        name: Name for messages.
        given: A table (`DataFrame`, `Dataset`, list of mappings), or tables by split.
    """

    name: str
    given: object


_Read = tuple[dict[str, RecordFile], BadRows]
_kept: ContextVar[dict[tuple[Path, bool], _Read | InputError] | None] = ContextVar(
    "kept", default=None
)


def read_rows(
    source: Path | str | Tables,
    *,
    columns: Columns | None = None,
    label_names: Sequence[str] | None = None,
    preset: Preset | None = None,
    kind: str | None = None,
    reading: Reading | None = None,
    bad_rows: BadRows | None = None,
    text_columns: TextColumns | None = None,
    label_lists: LabelLists | None = None,
) -> LabelledRows:
    """Read the splits of a data set; see `cl_graft.data.columns.to_rows`.

    Args:
        source: A path: a file, a folder of train / dev / test files, or a saved data set. Or a
            text: the name of a data set on the hub, ``"owner/name"``, with ``":config"`` where
            needed. Or rows that the program holds.
        columns: Columns named by the caller; the others are found by their usual names.
        label_names: Declared label names, in the order of class ids; empty for a regression. They
            go before those of the data.
        preset: Known data set that these rows may be of.
        kind: Name of the kind of tasks; None means that whose columns the data have.
        reading: Encoding and limits of the files, and which rows are taken. Of chosen rows, labels
            that none of them has are no labels of the task.
        bad_rows: Collects rows that cannot be used; its `warn` logs what was left out. None means
            they are errors, and what is left out even so is logged here.
        text_columns: How inputs of text to text are made of other columns. Labels of data that are
            named text to text, and have no such columns, become answers in any case.
        label_lists: How several labels of a row are written; None means the default.

    Raises:
        InputError: With file and line, if anything about the data is not as it must be; within
            seconds, if the hub cannot be reached.
    """
    reading, bad = reading or Reading(), bad_rows or BadRows()
    declared, positive, span_types = None, None, None
    found = Columns()
    if isinstance(source, Tables):
        records = _read_tables(source, reading, bad)
    elif isinstance(source, str):
        name, _, config = source.partition(":")
        records = _select_splits(read_hub_dataset(name, config or None, reading=reading), name)
    else:
        if not source.exists():
            raise InputError(f"{source}: {explain_missing(source)}")
        if source.is_dir():
            declared, positive, span_types = _read_meta(source)
        records = _read_files(source, reading, bad)
    records = {split: _choose(file, reading.where) for split, file in records.items()}
    asked, label_names = label_names, declared if label_names is None else label_names
    if text_columns is not None or (kind == Text2Text.name and lacks_columns(records["train"])):
        records, found = (text_columns or TextColumns()).fill(
            records, columns=columns or Columns(), label_names=label_names, bad_rows=bad
        )
        kind, columns, label_names = Text2Text.name, None, None
    plain = columns in (None, Columns())
    own: Kind | None = None
    if kind == MultiLabel.name:
        own = KINDS.find(MultiLabel.name)
    elif plain or kind is not None:
        own = choose_kind(records["train"], kind)
        if own is None and kind is None and has_label_lists(records["train"]):
            own = KINDS.find(MultiLabel.name)
    if isinstance(own, MultiLabel):
        records, label_names, found = (label_lists or LabelLists()).fill(
            records, columns=columns or Columns(), label_names=label_names, bad_rows=bad
        )
        plain = True
    if own is not None and not plain:
        raise InputError(
            f"a task of kind {own.name!r} is read from columns of usual names, such as "
            f"{join_names(own.columns)}; text, text_pair and label name those of other kinds"
        )
    if own is not None:
        names = {"label_names": label_names, "span_types": span_types}
        rows = read_kind_rows(
            own,
            records,
            declared={name: given for name, given in names.items() if given},
            bad_rows=bad,
        )
        if bad_rows is None:
            bad.warn()
        return replace(rows, columns=found)
    rows = to_rows(
        records,
        columns=columns or Columns(),
        label_names=label_names,
        preset=preset,
        bad_rows=bad,
    )
    if reading.where and asked is None:
        rows = _drop_unused_labels(rows)
    if bad_rows is None:
        bad.warn()
    return replace(rows, positive=positive, kind=kind or "")


def read_train_records(path: Path) -> RecordFile:
    """Read the training records of a local file or folder as they stand there.

    Records that cannot be read are left out.

    Raises:
        InputError: If there are none that can be read.
    """
    return _read_files(path, Reading(), BadRows("skip"))["train"]


@contextmanager
def read_once() -> Iterator[None]:
    """Keep what is read of local files for a `with` block, and read none of them again."""
    before = _kept.set({})
    try:
        yield
    finally:
        _kept.reset(before)


def has_rows(path: Path) -> bool:
    """Whether `path` is a file or folder that `read_rows` would try to read."""
    if path.is_file():
        return is_record_file(path)
    return path.is_dir() and (is_saved_dataset(path) or "train" in _find_candidates(path))


def explain_missing(path: Path) -> str:
    """Say why a path leads nowhere."""
    if path.is_symlink():
        return "a link that leads nowhere, or in a circle"
    return "there is no such file or folder"


def _read_files(path: Path, reading: Reading, bad: BadRows) -> dict[str, RecordFile]:
    kept, own = _kept.get(), (path, bad.skip)
    if kept is None or reading != Reading():
        return _read_each(path, reading, bad)
    skipped = kept.get((path, True))
    if isinstance(skipped, tuple) and not skipped[1].counts:
        kept[own] = skipped
    if own not in kept:
        fresh = BadRows("skip" if bad.skip else "error")
        try:
            kept[own] = _read_each(path, reading, fresh), fresh
        except InputError as error:
            kept[own] = error
    found = kept[own]
    if isinstance(found, InputError):
        raise found
    bad.notes += found[1].notes
    bad.merge(found[1], sum(len(file.records) for file in found[0].values()))
    return found[0]


def _read_each(path: Path, reading: Reading, bad: BadRows) -> dict[str, RecordFile]:
    if path.is_file():
        return {"train": read_records(path, reading=reading, bad_rows=bad)}
    if not path.is_dir():
        raise InputError(f"{path}: neither a file nor a folder but a device, a pipe or a socket")
    if is_saved_dataset(path):
        return _select_splits(read_saved_dataset(path, reading=reading), str(path))
    files = _find_split_files(path)
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
        split: read_records(file, reading=reading, bad_rows=bad) for split, file in files.items()
    }


def _read_tables(source: Tables, reading: Reading, bad: BadRows) -> dict[str, RecordFile]:
    """Read the tables of a program, by split; a table alone holds training rows."""
    given = source.given
    if not isinstance(given, Mapping):
        return {"train": _read_table(given, source.name, reading, bad)}
    own = not _is_of("datasets", given)
    for name, table in given.items() if own else ():
        if _find_split(str(name)) is None:
            known = nearest(str(name), chain(*_SPLITS.values()))
            raise InputError(f"{source.name}: {name!r} is no split; {known}")
        if isinstance(table, list) and table and not isinstance(table[0], Mapping):
            raise InputError(
                f"{source.name}: the rows of {name!r} must be dictionaries by column, got "
                f"{type(table[0]).__name__}"
            )
    files = {
        name: _read_table(table, f"{source.name}[{name}]", reading, bad)
        for name, table in given.items()
        if _find_split(name)
    }
    return _select_splits(files, source.name)


def _read_table(table: Any, place: str, reading: Reading, bad: BadRows) -> RecordFile:
    if _is_of("datasets", table) and hasattr(table, "select_columns") and hasattr(table, "__len__"):
        file = read_dataset(table, place, reading)
        records, columns = file.records, file.columns
    else:
        file = RecordFile(place, (), (), {})
        numbered = enumerate(_list_rows(table, place), start=1)
        found = (
            Record(add_paths(values), f"{place}: row {number} (index {index!r})")
            for number, (index, values) in numbered
        )
        records = collect_records(place, found, reading)
        columns = tuple(dict.fromkeys(name for record in records for name in record.values))
    records = drop_headers(place, records, bad)
    bad.refuse_none_left(place, len(records))
    return replace(file, columns=tuple(filter(str.strip, columns)), records=records)


def _list_rows(table: Any, place: str) -> Iterator[tuple[object, dict[str, object]]]:
    """Walk over the rows of a table with the index of each."""
    if _is_of("pandas", table) and hasattr(table, "itertuples") and hasattr(table, "columns"):
        names = [str(name) for name in table.columns]
        if len(set(names)) != len(names):
            raise InputError(f"{place}: the table has a column twice: {join_names(names)}")
        whole = table.astype(object).where(table.notna(), None)
        rows = zip(whole.index.tolist(), whole.itertuples(index=False, name=None), strict=True)
        for index, values in rows:
            yield index, dict(zip(names, map(_to_plain, values), strict=True))
    elif isinstance(table, list | tuple):
        for index, values in enumerate(table):
            if not isinstance(values, Mapping):
                raise InputError(
                    f"{place}: row {index + 1} (index {index}) must be a dictionary by column, got "
                    f"{type(values).__name__}"
                )
            yield index, {str(name): _to_plain(value) for name, value in values.items()}
    else:
        raise InputError(f"{place}: expected {_TABLES}; got {type(table).__name__}")


def _to_plain(value: Any) -> object:
    """Return values of numpy and tensors as those of Python."""
    return value.tolist() if hasattr(value, "tolist") else value


def _is_of(library: str, value: object) -> bool:
    """Whether a value's class, or one that it extends, is of a library, which is not imported."""
    return any(cls.__module__.split(".")[0] == library for cls in type(value).__mro__)


def _find_split_files(folder: Path) -> dict[str, Path]:
    for split, files in (found := _find_candidates(folder)).items():
        if len(files) > 1:
            raise InputError(
                f"{folder}: both {files[0].name} and {files[1].name} are {split} files; keep one"
            )
        if not files[0].is_file():
            what = "a folder" if files[0].is_dir() else explain_missing(files[0])
            raise InputError(f"{files[0]}: {what}, where a file is expected")
    return {split: files[0] for split, files in found.items()}


def _find_candidates(folder: Path) -> dict[str, list[Path]]:
    """Return what is called like the file of a split, by split."""
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.iterdir()):
        stem = strip_suffix(path.name)
        split = _find_split(stem) if stem else None
        if split is not None:
            found.setdefault(split, []).append(path)
    return found


def _find_split(name: str) -> str | None:
    return next((split for split, names in _SPLITS.items() if name.lower() in names), None)


def _choose(file: RecordFile, where: Mapping[str, str]) -> RecordFile:
    """Take the records that have some values."""
    records = file.records
    for column, value in where.items():
        if column not in file.columns:
            raise InputError(
                f"{file.place}: there is no column {column!r}; {nearest(column, file.columns)}"
            )
        held = dict.fromkeys(str(record.values.get(column)) for record in records)
        if value not in held:
            raise InputError(
                f"{file.place}: no row has {value!r} in column {column!r}; {nearest(value, held)}"
            )
        records = tuple(r for r in records if str(r.values.get(column)) == value)
    return replace(file, records=records)


def _drop_unused_labels(rows: LabelledRows) -> LabelledRows:
    """Keep the labels that a row has, in their order."""
    used = sorted({int(row.label) for own in rows.splits.values() for row in own})
    if not rows.label_names or len(used) == len(rows.label_names):
        return rows
    numbers = {label: number for number, label in enumerate(used)}
    splits = {
        split: tuple(replace(row, label=numbers[int(row.label)]) for row in own)
        for split, own in rows.splits.items()
    }
    names = tuple(rows.label_names[label] for label in used)
    return replace(rows, splits=splits, label_names=names)


def _select_splits(files: Mapping[str, RecordFile], place: str) -> dict[str, RecordFile]:
    found: dict[str, RecordFile] = {}
    for name, file in files.items():
        split = _find_split(name)
        if split in found:
            raise InputError(
                f"{place}: both {found[split].place} and {file.place} are {split} splits; keep one"
            )
        if split is not None:
            found[split] = file
    if "train" not in found:
        raise InputError(f"{place}: there is no train split; there are {', '.join(files)}")
    return found


def _read_meta(
    folder: Path,
) -> tuple[tuple[str, ...] | None, str | None, tuple[str, ...] | None]:
    """Read what a folder's `meta.json` declares: label names, the positive one, and span types."""
    path = folder / "meta.json"
    if not path.is_file():
        return None, None, None
    try:
        meta = json.loads(path.read_text(encoding="utf-8-sig"))
        names, positive = meta.get("label_names"), meta.get("positive")
        types = meta.get("span_types")
    except (ValueError, AttributeError, RecursionError) as error:
        raise InputError(f"{path}: not a readable JSON object ({error})") from None
    if positive is not None and not isinstance(positive, str):
        raise InputError(f"{path}: positive must be a label's name, got {positive!r}")
    for name, given in {"label_names": names, "span_types": types}.items():
        if given is not None and not (
            isinstance(given, list) and all(isinstance(one, str) for one in given)
        ):
            raise InputError(f"{path}: {name} must be a list of texts, got {given!r}")
    return None if names is None else tuple(names), positive, types and tuple(types)
