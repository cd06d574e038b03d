"""The readers of files of records: JSON, csv, tsv and parquet, each record with its place."""

from __future__ import annotations

import codecs
import csv
import gzip
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from cl_graft.data.arrow_tables import read_parquet
from cl_graft.data.bad_rows import BadRows
from cl_graft.data.text_files import MAX_CHARACTERS, Reading, check_row_count, read_lines
from cl_graft.errors import InputError, join_names
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
    ((".json", ".json.gz"), "a .json holds a list of objects, [{…}, {…}], or one object a line"),
)
"""Endings of other files, and how to make one that is read of them."""

_NULL = "\\N"
"""Field of a data base's dump that has no value."""

_MAX_NAME = 1000
"""Characters of a text that may be the name of a column."""

_BYTES_PEEKED = 1000
_JSON_ROWS = re.compile(rb'\s*(\[|\{[ \t]*["}])')
_NOT_DECODED = re.compile("[\udc80-\udcff]")
_BLANKS = re.compile(r"[ \t\r\n]*")

_DELIMITERS = ",;\t|"
_QUOTED = re.compile('"[^"]*(?:"|$)')
_SEPARATOR_LINE = re.compile(r'"?sep=(.)"?[ \t]*(?:\r\n?|\n)', re.IGNORECASE)
_ESCAPED_NULL = re.compile(r"(?<![^,;\t|])\\N(?=[,;\t|\r\n]|$)")


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
    place: str


@dataclass(frozen=True, slots=True)
class RecordFile:
    """Records of one file or table; `columns` of JSON lines are all names that occur.

    `class_names` are the label names by column that data of the datasets library declare,
    `passed_over` the columns that hold other things than texts and labels, and `header` is the
    place of the line that names the columns; empty where each row names its own.
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

    def find(self, names: Iterable[str]) -> str | None:
        """Return the first of some names that is a column."""
        return next((name for name in names if name in self.columns), None)


def strip_suffix(name: str) -> str | None:
    """Return the file name without its format's suffix, or None if it is no format read here."""
    for suffix in sorted(SUFFIXES, key=len, reverse=True):
        if name.lower().endswith(suffix):
            return name[: -len(suffix)]
    return None


def is_record_file(path: Path) -> bool:
    """Whether a file is of a format read here; a `.json` is if it begins as a list or as lines."""
    name = path.name.lower()
    if strip_suffix(name) is None or not name.endswith((".json", ".json.gz")):
        return strip_suffix(name) is not None
    try:
        with gzip.open(path) if name.endswith(".gz") else path.open("rb") as file:
            start = file.read(_BYTES_PEEKED)
    except (OSError, EOFError, zlib.error):
        return True  # who reads it says what is wrong with it
    for mark in (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        start = start.removeprefix(mark)
    return bool(_JSON_ROWS.match(start.replace(b"\0", b"")))


def explain_unread_kind(path: Path, read: Iterable[str] = SUFFIXES) -> str:
    """Say that a file is of no kind that is `read`, and how to make one of it."""
    name = path.name.lower()
    known = (how for endings, how in _OTHER_KINDS if name.endswith(endings))
    how = next(known, "save the table as one of them")
    return f"{path}: unknown kind of file; read are {', '.join(read)}; {how}"


def read_records(
    path: Path, *, reading: Reading | None = None, bad_rows: BadRows | None = None
) -> RecordFile:
    r"""Read a file of records by the suffix of its name; without `bad_rows` these are errors.

    JSON is one list of objects, or one object a line, whatever the file is called. Of tables a
    field ``\N`` has no value, and columns without a name are passed over. A row that repeats the
    header is a bad row, and an empty line is none.
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
    records = tuple(Record(values, f"{path}: row {n}") for n, values in numbered)
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
    """Read the lines of a file of records, as `read_records` does; `kind` is a suffix."""
    reading, bad = reading or Reading(), bad_rows or BadRows()
    if not any(map(str.strip, lines)):
        raise InputError(f"{place}: the file is empty")
    header = ""
    if kind in ("jsonl", "json"):
        own = BadRows("skip")
        records = collect_records(str(place), _read_json(lines, place, own), reading)
        bad.merge(own, len(records))
        _refuse_other_objects(place, records)
        names = dict.fromkeys(name for record in records for name in record.values)
        columns = tuple(filter(str.strip, names))
    else:
        columns, records, header = _read_table(place, lines, kind, reading, bad)
    records = drop_headers(str(place), records, bad)
    _refuse_no_records(place, records, bad)
    return RecordFile(str(place), columns, records, {}, header=header)


def collect_records(place: str, records: Iterable[Record], reading: Reading) -> tuple[Record, ...]:
    """Collect the records of a file, of which there may be only so many."""
    gathered: list[Record] = []
    for record in records:
        gathered.append(record)
        check_row_count(place, len(gathered), reading)
    return tuple(gathered)


def drop_headers(place: str, records: tuple[Record, ...], bad: BadRows) -> tuple[Record, ...]:
    """Take rows that repeat the names of the columns, as stacked files have, as bad rows.

    Raises:
        InputError: If they are in another order: the rows after them would be read wrongly.
    """
    again = {record.place for record in records if _repeats_names(record.values)}

    def refuse_header(record: Record) -> Record:
        if record.place in again:
            raise InputError(
                f"{record.place}: the names of the columns again; these seem to be several files, "
                "one after another"
            )
        return record

    for record in records if again else ():
        names = [*map(_fold, record.values.values())]
        if record.place in again and names != [*map(_fold, record.values)]:
            raise InputError(
                f"{record.place}: the names of the columns in another order than at first; these "
                "are several files with different columns, so read each by itself"
            )
    return tuple(bad.read_each(place, records, refuse_header)) if again else records


def _repeats_names(values: Mapping[str, object]) -> bool:
    own = values.values()
    if len(values) < 2 or not all(isinstance(v, str) and len(v) <= _MAX_NAME for v in own):
        return False
    return {*map(_fold, own)} == {*map(_fold, values)}


def _fold(value: object) -> str:
    return str(value).strip().casefold()


def _refuse_no_records(path: Path, records: tuple[Record, ...], bad: BadRows) -> None:
    if not records and str(path) not in bad.counts:
        table = path.name.lower().removesuffix(".gz").endswith((".csv", ".tsv"))
        header = "a header but " if table else ""
        raise InputError(f"{path}: the file has {header}no rows")
    bad.refuse_none_left(str(path), len(records))


def _refuse_damaged(text: str, place: str) -> None:
    """Refuse bytes of another encoding, which `read_lines` left as surrogates, and NUL."""
    if "\0" in text:
        raise InputError(f"{place}: there is a NUL byte; the file is damaged, or not text")
    if match := _NOT_DECODED.search(text):
        byte = ord(match[0]) - 0xDC00
        raise InputError(f"{place}: byte 0x{byte:02x} is not of the file's encoding")


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
        yield from _read_json_list("".join(lines), path)
        return
    for number, line in enumerate(lines, start=1):
        if line.strip():
            place = f"{path}:{number}"
            try:
                yield Record(add_paths(_read_json_line(line.rstrip("\r\n"), place)), place)
            except InputError as fault:
                bad.leave_out(str(path), str(fault))


def _read_json_line(line: str, place: str) -> dict[str, object]:
    _refuse_damaged(line, place)
    try:
        values = json.loads(line, object_pairs_hook=partial(_refuse_doubled_names, place))
    except json.JSONDecodeError as error:
        whole = line.strip() == "{"
        raise InputError(
            f"{place}: not valid JSON ({error.msg} at column {error.colno}); each line must hold "
            f"one JSON object{', and this is one document over many lines' if whole else ''}"
        ) from None
    except (ValueError, RecursionError) as error:
        raise _make_json_error(error, place) from None
    if not isinstance(values, dict):
        raise InputError(
            f"{place}: each line must hold one JSON object, got {type(values).__name__}"
        )
    return values


def _read_json_list(text: str, path: Path) -> Iterator[Record]:
    at, line, number, seen = _skip_blanks(text, 0), 1, 0, 0
    while True:
        at = _skip_blanks(text, at + 1)
        line, seen = line + text.count("\n", seen, at), at
        if number == 0 and text[at : at + 1] == "]":
            break
        number += 1
        place = f"{path}:{line}, item {number}"
        values, at = _read_json_item(text, at, place)
        yield Record(add_paths(values), place)
        at = _skip_blanks(text, at)
        if text[at : at + 1] != ",":
            break
    if text[at : at + 1] != "]" or text[_skip_blanks(text, at + 1) :]:
        line += text.count("\n", seen, at)
        what = "more text" if at < len(text) else "the end of the file"
        raise InputError(
            f"{path}:{line}: after {number:,} items there is {what}, where the list should go on "
            "or end; the file was probably cut off, or written to twice"
        )


def _skip_blanks(text: str, at: int) -> int:
    match = _BLANKS.match(text, at)
    return at if match is None else match.end()


def _read_json_item(text: str, at: int, place: str) -> tuple[dict[str, object], int]:
    if text[at : at + 1] != "{":
        raise InputError(f"{place}: each item of the list must be an object, as in {{…}}")
    decoder = json.JSONDecoder(object_pairs_hook=partial(_refuse_doubled_names, place))
    try:
        values, end = decoder.raw_decode(text, at)
    except json.JSONDecodeError as error:
        raise InputError(f"{place}: not valid JSON ({error.msg})") from None
    except (ValueError, RecursionError) as error:
        raise _make_json_error(error, place) from None
    _refuse_damaged(text[at:end], place)
    return values, end


def _make_json_error(error: Exception, place: str) -> InputError:
    """Return an error of ours as it is; of others say that the JSON is beyond what Python reads."""
    if isinstance(error, InputError):
        return error
    return InputError(f"{place}: JSON that cannot be read ({str(error).split(';', 1)[0]})")


def _refuse_doubled_names(place: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        seen: set[str] = set()
        name = next(name for name, _ in pairs if name in seen or seen.add(name))
        raise InputError(f"{place}: the name {name!r} stands twice in one JSON object")
    return values


def _refuse_other_objects(path: Path, records: Sequence[Record]) -> None:
    """Refuse JSON of one object that holds a whole table, in a list or by columns."""
    if len(records) != 1:
        return
    values = records[0].values
    others = {name: values[name] for name in values.keys() - find_kind_columns(values)}
    for name, own in others.items():
        if isinstance(own, list) and len(own) > 1 and all(isinstance(item, dict) for item in own):
            raise InputError(
                f"{path}: one object, whose rows seem to stand in the list {name!r}: write that "
                "list alone into the file"
            )
    tables = [isinstance(own, dict) for name, own in others.items() if "." not in name]
    if len(values) > 1 and tables and all(tables):
        raise InputError(
            f"{path}: one object that seems to hold a table by columns, as pandas writes it: write "
            "one object a row (to_json with orient='records')"
        )


# Tables: a row that cannot be read costs no other.


@dataclass(frozen=True, slots=True)
class _Dialect:
    """How a table's fields are written; a backslash makes the next character text, as in MySQL."""

    delimiter: str
    quotes: bool
    backslash: bool
    start: int


_Table = tuple[tuple[str, ...], tuple[Record, ...], str]
"""Columns, records, and the place of the header."""


def _read_table(
    path: Path, lines: Sequence[str], kind: str, reading: Reading, bad: BadRows
) -> _Table:
    """Read a table in the first of its likely dialects that gives the fewest bad rows."""
    tried: list[tuple[BadRows, _Dialect, _Table]] = []
    for dialect in _choose_dialects(lines, kind):
        own = BadRows("skip")
        with _allow_long_fields():
            tried.append((own, dialect, _read_dialect(path, lines, dialect, reading, own)))
        if not own.total:
            break
    own, dialect, table = min(tried, key=lambda each: each[0].total)
    if dialect.backslash:
        own.notes.append(f"{path}: read with backslashes before quotes, as MySQL writes them")
    bad.notes += own.notes
    bad.merge(own, len(table[1]))
    return table


def _choose_dialects(lines: Sequence[str], kind: str) -> list[_Dialect]:
    """Return the ways in which a table may be written, the likeliest first.

    Its fields are parted by what a first line ``sep=;`` says, as Excel reads it, or by what the
    header holds most of outside of quotes; those of a `.tsv` by tabs. In a `.tsv` quotes may be
    literal (GLUE's files are written so).
    """
    separator = _SEPARATOR_LINE.fullmatch(lines[0])
    if separator:
        delimiter = separator[1]
    elif kind == "tsv":
        delimiter = "\t"
    else:
        first = next(line for line in lines if line.strip())
        delimiter = max(_DELIMITERS, key=_QUOTED.sub("", first).count)
    quotes = (True, False) if kind == "tsv" else (True,)
    start = 1 if separator else 0
    return [_Dialect(delimiter, own, escape, start) for escape in (False, True) for own in quotes]


@contextmanager
def _allow_long_fields() -> Iterator[None]:
    before = csv.field_size_limit(MAX_CHARACTERS)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _read_dialect(
    path: Path, lines: Sequence[str], dialect: _Dialect, reading: Reading, bad: BadRows
) -> _Table:
    rows = _read_fields(lines, dialect)
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


def _read_fields(
    lines: Sequence[str], dialect: _Dialect
) -> Iterator[tuple[int, list[str] | csv.Error]]:
    """Yield each row's first line number and its fields, or what is wrong with it.

    An open quote swallows the lines after it; reading then goes on at the line after its first.
    """
    start = dialect.start
    while start < len(lines):
        own: Iterable[str] = (lines[number] for number in range(start, len(lines)))
        if dialect.backslash:  # the csv module would take that of a NULL away
            own = (_ESCAPED_NULL.sub(r"\\\\N", line) for line in own)
        reader = csv.reader(
            own,
            delimiter=dialect.delimiter,
            quoting=csv.QUOTE_MINIMAL if dialect.quotes else csv.QUOTE_NONE,
            escapechar="\\" if dialect.backslash else None,
            strict=True,
        )
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


def _read_header(fields: list[str] | csv.Error, place: str) -> list[str]:
    """Return the names of the columns; what is wrong with them concerns every row."""
    if isinstance(fields, csv.Error):
        raise InputError(f"{place}: the header is not readable ({fields})")
    for field in fields:
        _refuse_damaged(field, place)
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
        _refuse_damaged(field, place)
    values = ((name, field) for name, field in zip(header, fields, strict=False) if name)
    return {name: None if field == _NULL else field for name, field in values}
