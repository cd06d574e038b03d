"""The readers of files of records: JSON, csv, tsv and parquet, each record with its place.

A file is read whole, up to limits: of its bytes, its rows, a line, and the memory that its rows
take, which can be many times what the file has. What is wrong with a file (missing, damaged,
another format, too large) is one sentence that names it. What is wrong with a row (JSON syntax, a
ragged row, another encoding) names the line too, and is an error or counted, as the caller's
`BadRows` says.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cl_graft.data.bad_rows import BadRows
from cl_graft.data.delimited_text import (
    Dialect,
    LongLine,
    allow_long_fields,
    choose_dialects,
    read_table_rows,
)
from cl_graft.data.json_text import add_paths, holds_objects, read_json_objects, refuse_damaged
from cl_graft.data.parquet import read_parquet
from cl_graft.data.text_files import Reading, check_row_count, read_lines
from cl_graft.errors import InputError, join_names
from cl_graft.kinds.kind import find_kind_columns

SUFFIXES = (
    *(".jsonl", ".jsonl.gz", ".json", ".json.gz", ".csv", ".csv.gz", ".tsv", ".tsv.gz"),
    ".parquet",
)

_SPREADSHEETS = (".xlsx", ".xls", ".xlsm", ".xlsb", ".ods", ".numbers")
_DOCUMENTS = (".docx", ".doc", ".odt", ".pdf", ".rtf", ".pptx", ".html", ".htm", ".xml")
_ARCHIVES = (".zip", ".tar", ".tgz", ".tar.gz", ".7z", ".rar", ".xz", ".bz2", ".zst")

_NULL = "\\N"
"""Field of a data base's dump that has no value."""

_Table = tuple[tuple[str, ...], "tuple[Record, ...]", str]

_MEMORY_A_BYTE = 8
_BYTES_A_VALUE = 64
_BYTES_PEEKED = 1000
_MAX_NAME = 1000
"""Characters of a text that may be the name of a column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Names of a file's columns.

    Attributes:
        text: Column of the first text; None if it is to be found.
        text_pair: Column of the second text; None if it is to be found, or there is none.
        label: Column of the label; None if it is to be found.
        inputs: Templates that made the input of text to text from columns, such as ``"{body}"``.
    """

    text: str | None = None
    text_pair: str | None = None
    label: str | None = None
    inputs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a file.

    Attributes:
        values: Values by column.
        place: Place of the record, as ``"file:line"``, for messages.
    """

    values: Mapping[str, object]
    place: str


@dataclass(frozen=True, slots=True)
class RecordFile:
    """Records of one file or table.

    Attributes:
        place: Name of the file, for messages.
        columns: Names of its columns; of JSON lines, all names that occur.
        records: The records.
        class_names: Declared label names by column, which parquet files of the datasets library
            carry.
        passed_over: Names of further columns, which hold other things than texts and labels.
        header: Place of the line that names the columns; empty where each row names its own.
    """

    place: str
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


def strip_suffix(name: str) -> str | None:
    """Return the file name without its format's suffix, or None if it is no format read here."""
    for suffix in sorted(SUFFIXES, key=len, reverse=True):
        if name.lower().endswith(suffix):
            return name[: -len(suffix)]
    return None


def is_record_file(path: Path) -> bool:
    """Whether a file is of a format read here; a `.json` is if it begins as a list or as lines."""
    if strip_suffix(path.name) is None:
        return False
    name = path.name.lower()
    if not name.endswith((".json", ".json.gz")):
        return True
    try:
        with gzip.open(path) if name.endswith(".gz") else path.open("rb") as file:
            return holds_objects(file.read(_BYTES_PEEKED))
    except (OSError, EOFError, zlib.error):
        return True  # who reads it says what is wrong with it


def explain_unread_kind(path: Path, read: Iterable[str] = SUFFIXES) -> str:
    """Say that a file is of no kind that is `read`, and how to make one of it."""
    name = path.name.lower()
    if name.endswith(_SPREADSHEETS):
        how = "a spreadsheet: save its sheet as CSV (UTF-8), with the names of columns in line 1"
    elif name.endswith(_DOCUMENTS):
        how = "a document: write its texts into a CSV file, one a row, with a column of labels"
    elif name.endswith(_ARCHIVES):
        how = "an archive: unpack it, and name the file or folder in it"
    elif name.endswith((".json", ".json.gz")):
        how = "a .json holds a list of objects, [{…}, {…}], or one object a line"
    else:
        how = "save the table as one of them"
    return f"{path}: unknown kind of file; read are {', '.join(read)}; {how}"


def read_records(
    path: Path, *, reading: Reading | None = None, bad_rows: BadRows | None = None
) -> RecordFile:
    r"""Read a file of records by the suffix of its name.

    The fields of a `.csv` are parted by what a first line ``sep=;`` says, or by what its header
    holds most of outside of quotes: commas, semicolons, tabs or bars. Quotes are doubled within
    quotes, or, if that leaves fewer bad rows, follow a backslash (MySQL's dumps are written so); in
    a `.tsv` every quote may be literal, too (GLUE's files are written so). A field ``\N`` has no
    value. Columns without a name are passed over. A row that repeats the header is a bad row. JSON
    is one list of objects, or one object a line. Empty lines are passed over. A byte order mark is
    dropped.
    """
    reading, bad = reading or Reading(), bad_rows or BadRows()
    if not path.is_file():
        raise InputError(f"{path}: there is no such file")
    if not is_record_file(path):
        raise InputError(explain_unread_kind(path))
    kind = path.name.lower().removesuffix(".gz").rsplit(".", 1)[1]
    if kind != "parquet":
        lines = read_lines(path, reading, escape=bad.skip, notes=bad.notes)
        return parse_records(lines, kind, place=path, reading=reading, bad_rows=bad)
    table = read_parquet(path, reading)
    numbered = enumerate(table.rows, start=1)
    records = collect_records(
        str(path), (Record(v, f"{path}: row {n}") for n, v in numbered), reading
    )
    records = drop_headers(str(path), records, bad)
    _refuse_no_records(path, records, bad)
    columns = tuple(filter(str.strip, table.columns))
    return RecordFile(str(path), columns, records, table.class_names, table.passed_over)


def parse_records(
    lines: Sequence[str],
    kind: str,
    *,
    place: Path,
    reading: Reading | None = None,
    bad_rows: BadRows | None = None,
) -> RecordFile:
    """Read the lines of a file of records, as `read_records` does."""
    reading, bad = reading or Reading(), bad_rows or BadRows()
    if not any(map(str.strip, lines)):
        raise InputError(f"{place}: the file is empty")
    header = ""
    if kind in ("jsonl", "json"):
        own = BadRows("skip")
        found = (Record(add_paths(v), at) for v, at in read_json_objects(lines, place, own))
        records = collect_records(str(place), found, reading)
        bad.merge(own, len(records))
        _refuse_other_objects(place, records)
        names = dict.fromkeys(name for record in records for name in record.values)
        columns = tuple(filter(str.strip, names))
    else:
        columns, records, header = _read_table(place, lines, kind, reading, bad)
    records = drop_headers(str(place), records, bad)
    _refuse_no_records(place, records, bad)
    return RecordFile(str(place), columns, records, {}, header=header)


def drop_headers(place: str, records: Iterable[Record], bad: BadRows) -> tuple[Record, ...]:
    """Take rows that repeat the names of the columns, as stacked files have, as bad rows."""
    records = tuple(records)
    again = {record.place for record in records if _repeats_names(record.values)}

    def refuse_header(record: Record) -> Record:
        if record.place in again:
            raise InputError(
                f"{record.place}: the names of the columns again; these seem to be several files, "
                "one after another"
            )
        return record

    for record in records if again else ():
        names = [*map(_name, record.values.values())]
        if record.place in again and names != [*map(_name, record.values)]:
            raise InputError(
                f"{record.place}: the names of the columns in another order than at first; these "
                "are several files with different columns, so read each by itself"
            )
    return tuple(bad.read_each(place, records, refuse_header)) if again else records


def _repeats_names(values: Mapping[str, object]) -> bool:
    """Tell whether a row holds the names of the columns, in any case and order."""
    own = values.values()
    if len(values) < 2 or not all(isinstance(v, str) and len(v) <= _MAX_NAME for v in own):
        return False
    return {*map(_name, own)} == {*map(_name, values)}


def _name(value: object) -> str:
    return str(value).strip().casefold()


def _refuse_other_objects(path: Path, records: Sequence[Record]) -> None:
    """Refuse JSON of one object that holds a whole table."""
    if len(records) != 1:
        return
    values = records[0].values
    others = [name for name in values if name not in find_kind_columns(values)]
    for name in others:
        own = values[name]
        if isinstance(own, list) and len(own) > 1 and all(isinstance(one, dict) for one in own):
            raise InputError(
                f"{path}: one object, whose rows seem to stand in the list {name!r}: write that "
                "list alone into the file"
            )
    tables = [isinstance(values[name], dict) for name in others if "." not in name]
    if len(values) > 1 and tables and all(tables):
        raise InputError(
            f"{path}: one object that seems to hold a table by columns, as pandas writes it: write "
            "one object a row (to_json with orient='records')"
        )


def _refuse_no_records(path: Path, records: tuple[Record, ...], bad: BadRows) -> None:
    """Refuse a file without rows."""
    if not records and str(path) not in bad.counts:
        table = path.name.lower().removesuffix(".gz").endswith((".csv", ".tsv"))
        header = "a header but " if table else ""
        raise InputError(f"{path}: the file has {header}no rows")
    bad.refuse_none_left(str(path), len(records))


def collect_records(place: str, records: Iterable[Record], reading: Reading) -> tuple[Record, ...]:
    """Collect the records of a file, as long as their number and their memory are within limits."""
    gathered: list[Record] = []
    memory = 0
    for record in records:
        gathered.append(record)
        memory += _measure_memory(record.values)
        check_row_count(place, len(gathered), reading)
        if memory > _MEMORY_A_BYTE * reading.most_bytes:
            raise InputError(
                f"{place}: its rows take more than {_MEMORY_A_BYTE * reading.max_megabytes:,} MB "
                f"of memory, {_MEMORY_A_BYTE} times the limit for a file; leave out columns that "
                "are no text or label, make it smaller, or raise max_megabytes"
            )
    return tuple(gathered)


def _measure_memory(values: object) -> int:
    """Return about how many bytes of memory values take, with all that is inside them."""
    size, found = 0, [values]
    for value in found:  # grows meanwhile
        size += _BYTES_A_VALUE
        if isinstance(value, str | bytes):
            size += len(value)
        elif isinstance(value, Mapping):
            found.extend(value.values())
            size += _BYTES_A_VALUE * len(value)
        elif isinstance(value, list | tuple):
            found.extend(value)
    return size


def _read_table(
    path: Path, lines: Sequence[str], kind: str, reading: Reading, bad: BadRows
) -> _Table:
    """Read a table in the first of its likely dialects that gives the fewest bad rows."""
    tried: list[tuple[BadRows, Dialect, _Table]] = []
    for dialect in choose_dialects(lines, kind):
        own = BadRows("skip")
        try:
            with allow_long_fields():
                tried.append((own, dialect, _read_dialect(path, lines, dialect, reading, own)))
        except LongLine as error:
            raise InputError(f"{path}: {error}; the file is no table, or damaged") from None
        if not own.total:
            break
    own, dialect, table = min(tried, key=lambda each: each[0].total)
    if dialect.backslash:
        own.notes.append(f"{path}: read with backslashes before quotes, as MySQL writes them")
    bad.notes += own.notes
    bad.merge(own, len(table[1]))
    return table


def _read_dialect(
    path: Path, lines: Sequence[str], dialect: Dialect, reading: Reading, bad: BadRows
) -> _Table:
    rows = read_table_rows(lines, dialect)
    number, fields = next(((n, f) for n, f in rows if f), (1, []))
    header = _read_header(fields, place := f"{path}:{number}")
    first = next(column for column, name in enumerate(header) if name)
    nameless = [c for c, name in enumerate(header) if not name and c > first]
    unread = 0

    def read_each() -> Iterator[Record]:
        nonlocal unread
        for number, fields in rows:
            place = f"{path}:{number}"
            try:
                if fields:
                    yield Record(_match_header(fields, header, dialect.delimiter, place), place)
                    unread += any(fields[column] for column in nameless)  # pyright: ignore[reportIndexIssue]
            except InputError as fault:
                bad.leave_out(str(path), str(fault))

    records = collect_records(str(path), read_each(), reading)
    if unread:
        bad.notes.append(
            f"{path}: {unread:,} row{'s hold' if unread > 1 else ' holds'} something in columns "
            "without a name, which is not read"
        )
    return tuple(filter(None, header)), records, place


def _read_header(fields: list[str] | csv.Error, place: str) -> list[str]:
    """Return the names of the columns; what is wrong with them concerns every row."""
    if isinstance(fields, csv.Error):
        raise InputError(f"{place}: the header is not readable ({fields})")
    for field in fields:
        refuse_damaged(field, place)
    header = [name.strip() for name in fields]
    named = [name for name in header if name]
    if not named:
        raise InputError(f"{place}: the header names no column: {header}")
    if len(set(named)) != len(named):
        raise InputError(f"{place}: the header names a column twice: {header}")
    return header


def _match_header(
    fields: list[str] | csv.Error, header: list[str], delimiter: str, place: str
) -> dict[str, object]:
    if isinstance(fields, csv.Error):
        raise InputError(
            f"{place}: not a readable row ({fields}); a quote that is not closed, or one within "
            "quotes that is not doubled, causes this"
        )
    if len(fields) < len(header) or any(fields[len(header) :]):
        raise InputError(
            f"{place}: {len(fields)} fields, but the header has {len(header)} "
            f"({', '.join(header[:20])}); a field with {delimiter!r} in it needs quotes"
        )
    for field in fields:
        refuse_damaged(field, place)
    values = ((name, field) for name, field in zip(header, fields, strict=False) if name)
    return {name: None if field == _NULL else field for name, field in values}
