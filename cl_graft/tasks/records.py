"""Files of records: jsonl, csv, tsv and parquet, each record with its place for messages.

A file is read whole. Every fault (a missing file, another encoding, JSON syntax, a ragged row, a
truncated archive) is one sentence that names file and line.
"""

import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cl_graft.errors import InputError

__all__ = ["SUFFIXES", "Record", "RecordFile", "read_records", "strip_suffix"]

SUFFIXES = (".jsonl", ".jsonl.gz", ".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")


@dataclass(frozen=True, slots=True)
class Record:
    """Named values of one record, and where it stands (`file:line`)."""

    values: Mapping[str, object]
    place: str


@dataclass(frozen=True, slots=True)
class RecordFile:
    """The records of one file or table.

    `columns` are the names of the first record. `class_names` holds declared label names by column,
    which parquet files of the datasets library carry.
    """

    place: str
    columns: tuple[str, ...]
    records: tuple[Record, ...]
    class_names: Mapping[str, tuple[str, ...]]


def strip_suffix(name: str) -> str | None:
    """Return the file name without its format's suffix, or None if it is no format read here."""
    for suffix in sorted(SUFFIXES, key=len, reverse=True):
        if name.lower().endswith(suffix):
            return name[: -len(suffix)]
    return None


def read_records(path: Path) -> RecordFile:
    """Read a file of records by the suffix of its name.

    A `.csv` is comma-separated, or semicolon-separated if its header holds semicolons and no comma.
    A `.tsv` is read with quotes as csv has them; if that fails, every quote is literal (GLUE's
    files are written so). Empty lines are passed over. A byte order mark is dropped.

    Raises:
        InputError: If the file is missing, of another format, damaged or empty.
    """
    if not path.is_file():
        raise InputError(f"{path}: there is no such file")
    if strip_suffix(path.name) is None:
        raise InputError(f"{path}: unknown kind of file; read are {', '.join(SUFFIXES)}")
    kind = path.name.lower().removesuffix(".gz").rsplit(".", 1)[1]
    if kind == "parquet":
        return _read_parquet(path)
    text = _read_text(path)
    if not text.strip():
        raise InputError(f"{path}: the file is empty")
    if kind == "jsonl":
        records = tuple(_json_records(path, text))
    elif kind == "csv":
        header = text.split("\n", 1)[0]
        delimiter = ";" if ";" in header and "," not in header else ","
        records = tuple(_table_records(path, text, delimiter, quotes=True))
    else:
        try:
            records = tuple(_table_records(path, text, "\t", quotes=True))
        except InputError as quoted_fault:
            try:
                records = tuple(_table_records(path, text, "\t", quotes=False))
            except InputError:
                raise quoted_fault from None
    if not records:
        raise InputError(f"{path}: the file has a header but no rows")
    return RecordFile(str(path), tuple(records[0].values), records, {})


def _read_text(path: Path) -> str:
    try:
        data = path.read_bytes()
        if path.name.lower().endswith(".gz"):
            data = gzip.decompress(data)
    except EOFError:
        raise InputError(
            f"{path}: the gzip archive ends too early; it was probably cut off while being copied"
        ) from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{path}: not an intact gzip archive ({error})") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        seen = bytes(error.object)
        line = seen.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{path}:{line}: byte 0x{seen[error.start]:02x} is not UTF-8; "
            "save the file with that encoding"
        ) from None


def _json_records(path: Path, text: str) -> Iterator[Record]:
    # Split at "\n" alone: str.splitlines would also cut at separators that JSON strings may hold.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        place = f"{path}:{number}"
        try:
            values = json.loads(line)
        except json.JSONDecodeError as error:
            raise InputError(
                f"{place}: not valid JSON ({error.msg} at column {error.colno}); "
                "each line must hold one JSON object"
            ) from None
        if not isinstance(values, dict):
            raise InputError(
                f"{place}: each line must hold one JSON object, got {type(values).__name__}"
            )
        yield Record(values, place)


def _table_records(path: Path, text: str, delimiter: str, *, quotes: bool) -> Iterator[Record]:
    reader = csv.reader(
        io.StringIO(text, newline=""),
        delimiter=delimiter,
        quoting=csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE,
        strict=True,
    )
    header: list[str] | None = None
    start = 1
    try:
        for fields in reader:
            place = f"{path}:{start}"
            start = reader.line_num + 1
            if not fields:
                continue
            if header is None:
                header = [name.strip() for name in fields]
                if len(set(header)) != len(header):
                    raise InputError(f"{place}: the header names a column twice: {header}")
                continue
            if len(fields) != len(header):
                raise InputError(
                    f"{place}: {len(fields)} fields, but the header has {len(header)} "
                    f"({', '.join(header)}); a field with {delimiter!r} in it needs quotes"
                )
            yield Record(dict(zip(header, fields, strict=True)), place)
    except csv.Error as error:
        raise InputError(f"{path}:{start}: not a readable row ({error})") from None


def _read_parquet(path: Path) -> RecordFile:
    # pyarrow comes with datasets and takes a moment to import; other formats do without it.
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(path)
    except (pyarrow.ArrowException, OSError) as error:
        reason = str(error).split("\n", 1)[0]
        raise InputError(f"{path}: not an intact parquet file ({reason})") from None
    if table.num_rows == 0:
        raise InputError(f"{path}: the file has no rows")
    records = tuple(
        Record(values, f"{path}: row {number}")
        for number, values in enumerate(table.to_pylist(), start=1)
    )
    metadata = (table.schema.metadata or {}).get(b"huggingface", b"{}")
    return RecordFile(str(path), tuple(table.column_names), records, _class_names(metadata))


def _class_names(metadata: bytes) -> dict[str, tuple[str, ...]]:
    """Read the label names that the datasets library writes into a parquet file's schema."""
    try:
        features = json.loads(metadata).get("info", {}).get("features", {})
        return {
            column: tuple(feature["names"])
            for column, feature in features.items()
            if isinstance(feature, dict) and feature.get("_type") == "ClassLabel"
        }
    except (ValueError, AttributeError, KeyError, TypeError):
        # Foreign metadata under the same key is no reason to refuse the table.
        return {}
