"""The records of one file: JSON, csv, tsv or parquet is parsed, each record with its origin.

Of parquet files, and data sets of the datasets library, columns of single values are read, and of
lists and records whose names a kind of tasks has, batch by batch; class ids in a list, such as
tags, are read as their names.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cl_graft.data.bad_rows import BadRows
from cl_graft.data.labels import name_listed_classes
from cl_graft.data.text_files import MAX_CHARACTERS, Reading, read_lines
from cl_graft.errors import InputError, first_line, join_names
from cl_graft.kinds.kind import find_kind_columns

SUFFIXES = (
    *(".jsonl", ".jsonl.gz", ".json", ".json.gz", ".csv", ".csv.gz", ".tsv", ".tsv.gz"),
    ".parquet",
)

_OTHER_KINDS = (
    (
        (".xlsx", ".xls", ".xlsm", ".xlsb", ".ods", ".numbers"),
        "a spreadsheet: save its sheet as CSV (UTF-8), with the names of columns in line 1",
    ),
    (
        (".docx", ".doc", ".odt", ".pdf", ".rtf", ".pptx", ".html", ".htm", ".xml"),
        "a document: write its texts into a CSV file, one a row, with a column of labels",
    ),
    (
        (".zip", ".tar", ".tgz", ".tar.gz", ".7z", ".rar", ".xz", ".bz2", ".zst"),
        "an archive: unpack it, and name the file or folder in it",
    ),
)
"""Endings of other files, and how to make one that is read of them."""

_NOT_DECODED = re.compile("[\udc80-\udcff]")

_DELIMITERS = ",;\t|"
_QUOTED = re.compile('"[^"]*(?:"|$)')
_SEPARATOR_LINE = re.compile(r'"?sep=(.)"?\s*', re.IGNORECASE)
_NULL = re.compile(r"(?<![^,;\t|])\\N(?=[,;\t|\r\n]|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Names of a file's columns; None where one is to be found, or there is none.

    `inputs` are the templates that made an input of text to text, such as ``"{body}"``.
    """

    text: str | None = None
    text_pair: str | None = None
    label: str | None = None
    inputs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a file: values by column, and its place, ``"file:line"``, for messages."""

    values: Mapping[str, object]
    origin: str


@dataclass(frozen=True, slots=True)
class RecordFile:
    """Records of one file or table; `columns` of JSON lines are all names that occur.

    `class_names` are the label names by column that data of the datasets library declare,
    `passed_over` the columns that hold other things than texts and labels, and `header` is the
    place of the line that names the columns; empty where each row names its own.
    """

    origin: str
    columns: tuple[str, ...]
    records: tuple[Record, ...]
    class_names: Mapping[str, tuple[str, ...]]
    passed_over: tuple[str, ...] = ()
    header: str = ""

    @property
    def note_on_unread(self) -> str:
        """End of a sentence on a missing column: which columns were not read."""
        if not self.passed_over:
            return ""
        return (
            f"; not read are {join_names(self.passed_over)}, as lists and records are read under "
            "the usual names of their kind alone"
        )

    def find(self, names: Iterable[str]) -> str | None:
        """Return the first of some names that is a column."""
        return next((name for name in names if name in self.columns), None)


def strip_suffix(name: str) -> str | None:
    """Return the file name without its format's suffix, or None if it is no format read here."""
    for suffix in sorted(SUFFIXES, key=len, reverse=True):
        if name.lower().endswith(suffix):
            return name[: -len(suffix)]
    return None


def explain_unread_kind(path: Path, read: Iterable[str] = SUFFIXES) -> str:
    """Say that a file is of no kind that is `read`, and how to make one of it."""
    name = path.name.lower()
    known = (how for endings, how in _OTHER_KINDS if name.endswith(endings))
    how = next(known, "save the table as one of them")
    return f"{path}: unknown kind of file; read are {', '.join(read)}; {how}"


def read_records(
    path: Path, *, reading: Reading | None = None, bad_rows: BadRows | None = None
) -> RecordFile:
    """Read a file of records by the suffix of its name; without `bad_rows` these are errors.

    JSON is one list of objects, or one object a line, whatever the file is called. Columns of
    tables without a name are passed over. A row that repeats the header is a bad row, and an empty
    line is none.
    """
    reading, bad = reading or Reading(), bad_rows or BadRows()
    if not path.is_file():
        raise InputError(f"{path}: there is no such file")
    if strip_suffix(path.name) is None:
        raise InputError(explain_unread_kind(path))
    kind = path.name.lower().removesuffix(".gz").rsplit(".", 1)[1]
    if kind == "parquet":
        return collect_records(str(path), read_parquet(path, reading), bad)
    lines = read_lines(path, reading, escape=bad.skip, notes=bad.notes)
    return parse_records(lines, kind, path=path, bad_rows=bad)


def collect_records(origin: str, table: ArrowTable, bad: BadRows) -> RecordFile:
    """Read all rows of a table that is open."""
    numbered = enumerate(table.rows, start=1)
    records = tuple(Record(values, f"{origin}: row {number}") for number, values in numbered)
    bad.refuse_none_left(origin, len(records))
    columns = tuple(filter(str.strip, table.columns))
    return RecordFile(origin, columns, records, table.class_names, table.passed_over)


def parse_records(
    lines: Sequence[str], kind: str, *, path: Path, bad_rows: BadRows | None = None
) -> RecordFile:
    """Read the lines of a file of records, as `read_records` does; `kind` is a suffix."""
    bad = bad_rows or BadRows()
    if not any(map(str.strip, lines)):
        raise InputError(f"{path}: the file is empty")
    header = ""
    if kind in ("jsonl", "json"):
        skipped = BadRows("skip")
        records = tuple(_read_json(lines, path, skipped))
        bad.merge(skipped, len(records))
        _refuse_other_objects(path, records)
        names = dict.fromkeys(name for record in records for name in record.values)
        columns = tuple(filter(str.strip, names))
    else:
        columns, records, header = _read_table(path, lines, kind, bad)
    bad.refuse_none_left(str(path), len(records))
    return RecordFile(str(path), columns, records, {}, header=header)


def _refuse_damaged(text: str, origin: str) -> None:
    """Refuse bytes of another encoding, which `read_lines` left as surrogates, and NUL."""
    if "\0" in text:
        raise InputError(f"{origin}: there is a NUL byte; the file is damaged, or not text")
    if match := _NOT_DECODED.search(text):
        byte = ord(match[0]) - 0xDC00
        raise InputError(f"{origin}: byte 0x{byte:02x} is not of the file's encoding")


# JSON: one object a line, or the objects of one list.


def add_paths(values: dict[str, object]) -> dict[str, object]:
    """Return values with those inside of records, too, by names such as ``"review.body"``."""
    flat = dict(values)
    left = [(f"{name}.", value) for name, value in values.items() if isinstance(value, Mapping)]
    while left:
        prefix, record = left.pop()
        for name, value in record.items():
            if isinstance(value, Mapping):
                left.append((f"{prefix}{name}.", value))
            else:
                flat.setdefault(f"{prefix}{name}", value)
    return flat


def _read_json(lines: Sequence[str], path: Path, bad: BadRows) -> Iterator[Record]:
    """Walk over the objects; lines that hold none are left out, but a list is whole or an error."""
    first = next((line for line in lines if line.strip()), "")
    if first.lstrip().startswith("["):
        yield from _read_json_list(lines, path)
        return
    for number, line in enumerate(lines, start=1):
        if line.strip():
            origin = f"{path}:{number}"
            try:
                yield Record(add_paths(_read_json_line(line.rstrip("\r\n"), origin)), origin)
            except InputError as fault:
                bad.leave_out(str(path), str(fault))


def _read_json_line(line: str, origin: str) -> dict[str, object]:
    _refuse_damaged(line, origin)
    try:
        values = json.loads(line)
    except json.JSONDecodeError as error:
        whole = line.strip() == "{"
        raise InputError(
            f"{origin}: not valid JSON ({error.msg} at column {error.colno}); each line must hold "
            f"one JSON object{', and this is one document over many lines' if whole else ''}"
        ) from None
    except (ValueError, RecursionError) as error:
        raise _make_json_error(error, origin) from None
    if not isinstance(values, dict):
        raise InputError(
            f"{origin}: each line must hold one JSON object, got {type(values).__name__}"
        )
    return values


def _read_json_list(lines: Sequence[str], path: Path) -> Iterator[Record]:
    for number, line in enumerate(lines, start=1):
        _refuse_damaged(line, f"{path}:{number}")
    try:
        items = json.loads("".join(lines))
    except json.JSONDecodeError as error:
        raise InputError(
            f"{path}:{error.lineno}: not a valid list of JSON ({error.msg}); the file was probably "
            "cut off, or written to twice"
        ) from None
    except (ValueError, RecursionError) as error:
        raise _make_json_error(error, str(path)) from None
    for number, values in enumerate(items, start=1):
        origin = f"{path}: item {number}"
        if not isinstance(values, dict):
            raise InputError(f"{origin}: each item of the list must be an object, as in {{…}}")
        yield Record(add_paths(values), origin)


def _make_json_error(error: Exception, origin: str) -> InputError:
    """Say that the JSON is beyond what Python reads."""
    return InputError(f"{origin}: JSON that cannot be read ({str(error).split(';', 1)[0]})")


def _refuse_other_objects(path: Path, records: Sequence[Record]) -> None:
    """Refuse JSON of one object that holds a whole table, in a list or by columns."""
    if len(records) != 1:
        return
    values = records[0].values
    held = find_kind_columns(values)
    others = [value for name, value in values.items() if "." not in name and name not in held]
    listed = any(isinstance(value, list) and isinstance((*value, 0)[0], dict) for value in others)
    by_column = len(values) > 1 and all(isinstance(value, dict) for value in others)
    if listed or (others and by_column):
        raise InputError(
            f"{path}: one object that seems to hold a whole table: write a list of its rows, or "
            "one object a row (pandas: to_json with orient='records')"
        )


# Tables: a row that cannot be read costs no other.


_Table = tuple[tuple[str, ...], tuple[Record, ...], str]
"""Columns, records, and the place of the header."""


def _read_table(path: Path, lines: Sequence[str], kind: str, bad: BadRows) -> _Table:
    r"""Read a table whose fields are parted by what its header holds most of outside of quotes.

    A first line ``sep=;`` says it, too, as Excel writes it. Fields of a `.tsv` are parted by tabs.
    Where that gives fewer bad rows, quotes of a `.tsv` are literal (GLUE's files are written so),
    and a backslash stands before a quote (MySQL's dumps, whose ``\N`` is an empty field).
    """
    csv.field_size_limit(max(csv.field_size_limit(), MAX_CHARACTERS))
    separator = _SEPARATOR_LINE.fullmatch(lines[0])
    if separator:
        lines = ["\n", *lines[1:]]
        delimiter = separator[1]
    elif kind == "tsv":
        delimiter = "\t"
    else:
        header = _QUOTED.sub("", next(line for line in lines if line.strip()))
        delimiter = max(_DELIMITERS, key=header.count)
    ways: list[dict[str, Any]] = [{}]
    if kind == "tsv":
        ways.append({"quoting": csv.QUOTE_NONE})
    if any('\\"' in line for line in lines):
        ways.append({"escapechar": "\\"})
    tried: list[tuple[BadRows, _Table]] = []
    for way in ways:
        skipped = BadRows("skip")
        read = [_NULL.sub("", line) for line in lines] if "escapechar" in way else lines
        table = _match_rows(path, _read_fields(read, delimiter, way), delimiter, skipped)
        if "escapechar" in way:
            skipped.notes.append(
                f"{path}: read with backslashes before quotes, as MySQL writes them"
            )
        tried.append((skipped, table))
        if not skipped.total:
            break
    skipped, table = min(tried, key=lambda each: each[0].total)
    bad.notes += skipped.notes
    bad.merge(skipped, len(table[1]))
    return table


def _match_rows(
    path: Path, rows: Iterator[tuple[int, list[str] | csv.Error]], delimiter: str, bad: BadRows
) -> _Table:
    number, fields = next(((n, f) for n, f in rows if f), (1, []))
    header = _read_header(fields, header_at := f"{path}:{number}")
    first = next(column for column, name in enumerate(header) if name)
    nameless = [c for c, name in enumerate(header) if not name and c > first]
    records: list[Record] = []
    unread = 0
    for number, fields in rows:
        if not fields:
            continue
        try:
            values = _match_header(fields, header, delimiter, row := f"{path}:{number}")
        except InputError as fault:
            bad.leave_out(str(path), str(fault))
            continue
        records.append(Record(values, row))
        unread += any(fields[column] for column in nameless)  # pyright: ignore[reportIndexIssue]
    if unread:
        bad.notes.append(
            f"{path}: {unread:,} row{'s hold' if unread > 1 else ' holds'} something in columns "
            "without a name, which is not read"
        )
    return tuple(filter(None, header)), tuple(records), header_at


def _read_fields(
    lines: Sequence[str], delimiter: str, way: Mapping[str, Any]
) -> Iterator[tuple[int, list[str] | csv.Error]]:
    """Yield each row's first line number and its fields, or what is wrong with it.

    An open quote swallows the lines after it; reading then goes on at the line after its first.
    """
    start = 0
    while start < len(lines):
        rest = (lines[number] for number in range(start, len(lines)))
        reader = csv.reader(rest, delimiter=delimiter, strict=True, **way)
        begun = start
        while True:
            number = start + 1
            try:
                fields: list[str] | csv.Error | None = next(reader, None)
            except csv.Error as error:
                fields = error
            if fields is None:
                return
            yield number, fields
            end = begun + reader.line_num
            start = end if isinstance(fields, list) else start + 1
            if start < end:
                break


def _read_header(fields: list[str] | csv.Error, origin: str) -> list[str]:
    """Return the names of the columns; what is wrong with them concerns every row."""
    if isinstance(fields, csv.Error):
        raise InputError(f"{origin}: the header is not readable ({fields})")
    for field in fields:
        _refuse_damaged(field, origin)
    header = [name.strip() for name in fields]
    named = [name for name in header if name]
    if not named:
        raise InputError(f"{origin}: the header names no column: {header}")
    if len(set(named)) != len(named):
        raise InputError(f"{origin}: the header names a column twice: {header}")
    return header


def _match_header(
    fields: list[str] | csv.Error, header: list[str], delimiter: str, origin: str
) -> dict[str, object]:
    if isinstance(fields, csv.Error):
        raise InputError(
            f"{origin}: not a readable row ({fields}); a quote that is not closed, or one within "
            "quotes that is not doubled, causes this"
        )
    if len(fields) < len(header) or any(fields[len(header) :]):
        raise InputError(
            f"{origin}: {len(fields)} fields, but the header has {len(header)} "
            f"({', '.join(header[:20])}); a field with {delimiter!r} in it needs quotes"
        )
    for field in fields:
        _refuse_damaged(field, origin)
    if len(header) > 1 and [*map(str.strip, fields)] == header:
        raise InputError(
            f"{origin}: the names of the columns again; these seem to be several files, one after "
            "another"
        )
    return {name: field for name, field in zip(header, fields, strict=False) if name}


# pyarrow and datasets take most of a second to import, so each function imports them when called.

_BATCH_ROWS = 1_000


@dataclass(frozen=True, slots=True)
class ArrowTable:
    """A table that is open: its rows are read in batches, of the `columns` that are read."""

    columns: tuple[str, ...]
    rows: Iterator[dict[str, Any]]
    class_names: Mapping[str, tuple[str, ...]]
    passed_over: tuple[str, ...]


def read_parquet(path: Path, reading: Reading) -> ArrowTable:
    """Open a parquet file; damage is an error here, or while rows are read."""
    import pyarrow
    import pyarrow.parquet

    fault = "not an intact parquet file"
    try:
        file = pyarrow.parquet.ParquetFile(path)
        schema = file.schema_arrow
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{path}: {fault} ({first_line(error)})") from None

    # Texts are not kept as dictionaries: each batch would copy that of all batches before it.
    return _open(
        schema,
        lambda columns: file.iter_batches(_BATCH_ROWS, columns=columns),
        str(path),
        fault,
        reading,
    )


def read_dataset(table: Any, origin: str, reading: Reading) -> ArrowTable:
    """Open a `Dataset` of the datasets library."""
    fault = "the rows cannot be read"
    table = table.with_format("arrow")
    try:
        table.data.validate(full=True)  # values of damaged files may end the process
    except Exception as error:  # whatever reading a column raises
        raise InputError(f"{origin}: {fault} ({first_line(error)})") from None
    return _open(
        table.features.arrow_schema,
        lambda columns: table.select_columns(columns).iter(_BATCH_ROWS),
        origin,
        fault,
        reading,
    )


def _open(
    schema: Any,
    read: Callable[[list[str]], Iterable[Any]],
    origin: str,
    fault: str,
    reading: Reading,
) -> ArrowTable:
    """Open a table of a schema; `read` gives batches of some of its columns."""
    if doubled := sorted(name for name, count in Counter(schema.names).items() if count > 1):
        raise InputError(f"{origin}: there are several columns called {doubled[0]!r}")
    held = find_kind_columns(schema.names, labelled=reading.labelled)
    columns = [field.name for field in schema if _is_read(field.type, field.name in held)]
    class_names, tags = _read_class_names((schema.metadata or {}).get(b"huggingface", b"{}"))
    rows = _read_rows(read(columns), columns, origin, fault)
    if tags:
        rows = (name_listed_classes(row, tags) for row in rows)
    passed_over = tuple(name for name in schema.names if name not in columns)
    return ArrowTable(tuple(columns), rows, class_names, passed_over)


def _read_class_names(metadata: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    try:
        features = json.loads(metadata).get("info", {}).get("features", {})
        items = {n: f.get("feature") for n, f in features.items() if type(f) is dict}
        single, listed = (
            {
                column: tuple(feature["names"])
                for column, feature in columns.items()
                if isinstance(feature, dict) and feature.get("_type") == "ClassLabel"
            }
            for columns in (features, items)
        )
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
        # Foreign metadata under the same key is no reason to refuse the table.
        return {}, {}
    return single, listed


def _is_read(kind: Any, is_held: bool) -> bool:
    """Whether a column of a type is read: single values, or what a kind of tasks has."""
    import pyarrow.types as types

    if types.is_list(kind) or types.is_large_list(kind):
        return is_held and _is_read(kind.value_type, is_held)
    if types.is_struct(kind):
        parts = (kind.field(number).type for number in range(kind.num_fields))
        return is_held and all(_is_read(part, is_held) for part in parts)
    single = (
        *(types.is_string, types.is_large_string, types.is_binary, types.is_large_binary),
        *(types.is_dictionary, types.is_primitive, types.is_decimal, types.is_null),
    )
    return not types.is_temporal(kind) and any(is_one(kind) for is_one in single)


def _read_rows(
    batches: Iterable[Any], columns: list[str], origin: str, fault: str
) -> Iterator[dict[str, Any]]:
    left = iter(batches)
    while True:
        try:
            if (batch := next(left, None)) is None:
                return
            # A name with dots may be that of a field of another column, too.
            values = [_list_values(name, batch.column(name)) for name in columns]
        except Exception as error:  # whatever reading or decoding a column raises
            raise InputError(f"{origin}: {fault} ({first_line(error)})") from None
        for row in zip(*values, strict=True):
            yield dict(zip(columns, row, strict=True))


def _list_values(name: str, column: Any) -> list[Any]:
    try:
        return column.to_pylist()
    except UnicodeDecodeError as error:
        raise ValueError(f"column {name!r} holds a text that is not UTF-8: {error}") from None
