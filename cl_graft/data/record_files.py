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
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cl_graft.data.bad_rows import BadRows
from cl_graft.data.delimited_text import LongLine, allow_long_fields, read_table_rows
from cl_graft.data.json_text import (
    is_list,
    read_json_lines,
    read_json_list,
    refuse_damaged,
)
from cl_graft.data.parquet import read_parquet
from cl_graft.data.text_files import Reading, check_row_count, find_lines, read_text
from cl_graft.errors import InputError, join_names

__all__ = [
    "SUFFIXES",
    "Columns",
    "Record",
    "RecordFile",
    "collect_records",
    "explain_unread_kind",
    "is_record_file",
    "parse_records",
    "read_records",
    "strip_suffix",
]

SUFFIXES = (
    *(".jsonl", ".jsonl.gz", ".json", ".json.gz", ".csv", ".csv.gz", ".tsv", ".tsv.gz"),
    ".parquet",
)

_SPREADSHEETS = (".xlsx", ".xls", ".xlsm", ".xlsb", ".ods", ".numbers")
_DOCUMENTS = (".docx", ".doc", ".odt", ".pdf", ".rtf", ".pptx", ".html", ".htm", ".xml")
_ARCHIVES = (".zip", ".tar", ".tgz", ".tar.gz", ".7z", ".rar", ".xz", ".bz2", ".zst")

_QUOTED = re.compile('"[^"]*(?:"|$)')

_MEMORY_A_BYTE = 8
_BYTES_A_VALUE = 64
_BYTES_PEEKED = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Names of a file's columns.

    Attributes:
        text: Column of the first text; None if it is to be found.
        text_pair: Column of the second text; None if it is to be found, or there is none.
        label: Column of the label; None if it is to be found.
    """

    text: str | None = None
    text_pair: str | None = None
    label: str | None = None


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
    """

    place: str
    columns: tuple[str, ...]
    records: tuple[Record, ...]
    class_names: Mapping[str, tuple[str, ...]]
    passed_over: tuple[str, ...] = ()

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
    """Whether a file is of a format read here; a `.json` is if it begins as a list."""
    if strip_suffix(path.name) is None:
        return False
    name = path.name.lower()
    if not name.endswith((".json", ".json.gz")):
        return True
    try:
        with gzip.open(path) if name.endswith(".gz") else path.open("rb") as file:
            return is_list(file.read(_BYTES_PEEKED))
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
        how = "a .json holds a list of objects; JSON lines (one object a line) are called .jsonl"
    else:
        how = "save the table as one of them"
    return f"{path}: unknown kind of file; read are {', '.join(read)}; {how}"


def read_records(
    path: Path, *, reading: Reading | None = None, bad_rows: BadRows | None = None
) -> RecordFile:
    """Read a file of records by the suffix of its name.

    The fields of a `.csv` are parted by what its header holds most of outside of quotes: commas,
    semicolons or tabs.
    A `.tsv` is read with quotes as csv has them; if that fails, every quote is literal (GLUE's
    files are written so). A `.json` is one list of objects. Empty lines are passed over. A byte
    order mark is dropped.

    Args:
        path: The file.
        reading: Encoding and limits.
        bad_rows: Collects rows that cannot be read; None means they are errors.

    Raises:
        InputError: If the file is missing, of another format, damaged, too large or empty, or at
            the first row that cannot be read.
    """
    reading, bad = reading or Reading(), bad_rows or BadRows()
    if not path.is_file():
        raise InputError(f"{path}: there is no such file")
    if not is_record_file(path):
        raise InputError(explain_unread_kind(path))
    kind = path.name.lower().removesuffix(".gz").rsplit(".", 1)[1]
    if kind != "parquet":
        text = read_text(path, reading, escape=bad.skip, notes=bad.notes)
        return parse_records(text, kind, place=path, reading=reading, bad_rows=bad)
    table = read_parquet(path, reading)
    numbered = enumerate(table.rows, start=1)
    records = collect_records(
        str(path), (Record(v, f"{path}: row {n}") for n, v in numbered), reading
    )
    _refuse_no_records(path, records, bad)
    return RecordFile(str(path), table.columns, records, table.class_names, table.passed_over)


def parse_records(
    text: str,
    kind: str,
    *,
    place: Path,
    reading: Reading | None = None,
    bad_rows: BadRows | None = None,
) -> RecordFile:
    """Read the text of a file of records, as `read_records` does.

    Args:
        text: The text.
        kind: ``"jsonl"``, ``"json"``, ``"csv"`` or ``"tsv"``.
        place: Name of the file in messages.
        reading: Limits.
        bad_rows: Collects rows that cannot be read; None means they are errors.

    Raises:
        InputError: If the text is empty, or at the first row that cannot be read.
    """
    reading, bad = reading or Reading(), bad_rows or BadRows()
    if not text.strip():
        raise InputError(f"{place}: the file is empty")
    if kind in ("jsonl", "json"):
        values = (
            read_json_list(text, place) if kind == "json" else read_json_lines(text, place, bad)
        )
        records = collect_records(str(place), (Record(*each) for each in values), reading)
        columns = tuple(dict.fromkeys(name for record in records for name in record.values))
    else:
        columns, records = _read_table(place, text, kind, reading, bad)
    _refuse_no_records(place, records, bad)
    return RecordFile(str(place), columns, records, {})


def _refuse_no_records(path: Path, records: tuple[Record, ...], bad: BadRows) -> None:
    """Refuse a file without rows."""
    if not records and str(path) not in bad.counts:
        table = path.name.lower().removesuffix(".gz").endswith((".csv", ".tsv"))
        header = "a header but " if table else ""
        raise InputError(f"{path}: the file has {header}no rows")
    bad.refuse_none_left(str(path), len(records))


def collect_records(place: str, records: Iterable[Record], reading: Reading) -> tuple[Record, ...]:
    """Collect the records of a file, as long as their number and their memory are within limits.

    Raises:
        InputError: If there are more, or they take more than eight times what a file may have.
    """
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
    size, left = 0, [values]
    while left:
        value = left.pop()
        size += _BYTES_A_VALUE
        if isinstance(value, str | bytes):
            size += len(value)
        elif isinstance(value, Mapping):
            left.extend(value.values())
            size += _BYTES_A_VALUE * len(value)
        elif isinstance(value, list | tuple):
            left.extend(value)
    return size


def _read_table(
    path: Path, text: str, kind: str, reading: Reading, bad: BadRows
) -> tuple[tuple[str, ...], tuple[Record, ...]]:
    """Read a table; a tsv is read with literal quotes if that gives fewer bad rows."""
    if kind == "csv":
        first = next(line[0] for line in find_lines(text) if line[0].strip())
        header = _QUOTED.sub("", first)
        delimiter = max(",;\t", key=header.count)
        return _read_table_with(path, text, delimiter, reading, bad, quotes=True)
    quoted = BadRows("skip")
    table = _read_table_with(path, text, "\t", reading, quoted, quotes=True)
    if quoted.counts:
        literal = BadRows("skip")
        again = _read_table_with(path, text, "\t", reading, literal, quotes=False)
        if literal.total < quoted.total and (bad.skip or not literal.total):
            quoted, table = literal, again
    bad.merge(quoted)
    return table


def _read_table_with(
    path: Path, text: str, delimiter: str, reading: Reading, bad: BadRows, *, quotes: bool
) -> tuple[tuple[str, ...], tuple[Record, ...]]:
    try:
        with allow_long_fields():
            rows = read_table_rows(text, delimiter, quotes=quotes)
            header = _read_header(path, rows)
            records = collect_records(
                str(path), _read_table_records(path, rows, header, delimiter, bad), reading
            )
    except LongLine as error:
        raise InputError(f"{path}: {error}; the file is no table, or damaged") from None
    return tuple(header), records


def _read_header(path: Path, rows: Iterator[tuple[int, list[str] | csv.Error]]) -> list[str]:
    """Take the header off the rows; what is wrong with it concerns every row."""
    number, fields = next((n, f) for n, f in rows if f)
    place = f"{path}:{number}"
    if isinstance(fields, csv.Error):
        raise InputError(f"{place}: the header is not readable ({fields})")
    for field in fields:
        refuse_damaged(field, place)
    header = [name.strip() for name in fields]
    if len(set(header)) != len(header):
        raise InputError(f"{place}: the header names a column twice: {header}")
    return header


def _read_table_records(
    path: Path,
    rows: Iterator[tuple[int, list[str] | csv.Error]],
    header: list[str],
    delimiter: str,
    bad: BadRows,
) -> Iterator[Record]:
    for number, fields in rows:
        if not fields:
            continue
        place = f"{path}:{number}"
        try:
            yield Record(_match_header(fields, header, delimiter, place), place)
        except InputError as fault:
            bad.add(str(path), str(fault))


def _match_header(
    fields: list[str] | csv.Error, header: list[str], delimiter: str, place: str
) -> dict[str, object]:
    if isinstance(fields, csv.Error):
        raise InputError(
            f"{place}: not a readable row ({fields}); a quote that is not closed causes this"
        )
    if len(fields) != len(header):
        raise InputError(
            f"{place}: {len(fields)} fields, but the header has {len(header)} "
            f"({', '.join(header[:20])}); a field with {delimiter!r} in it needs quotes"
        )
    for field in fields:
        refuse_damaged(field, place)
    return dict(zip(header, fields, strict=True))
