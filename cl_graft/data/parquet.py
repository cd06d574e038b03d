"""Rows of parquet files, read batch by batch by pyarrow.

The rows of a batch are as many as take a bounded number of bytes by what the file says of its size.
Texts are not kept as dictionaries (pyarrow's `read_dictionary`): each batch would then copy the
dictionary of all batches before it, which took three times as long on texts that differ.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cl_graft.data.labels import name_listed_classes
from cl_graft.data.text_files import MEGABYTE, Reading, check_row_count, check_size
from cl_graft.errors import InputError, first_line
from cl_graft.kinds.kind import find_kind_columns

# pyarrow comes with datasets and takes a moment to import; other formats do without it.

_BATCH_BYTES = 64 * MEGABYTE
_BATCH_ROWS = 10_000
_MAX_FIXED_BYTES = 64


@dataclass(frozen=True, slots=True)
class ParquetTable:
    """A parquet file that is open.

    Attributes:
        columns: Names of the columns that are read.
        rows: Iterator over its rows, which reads the file in batches.
        class_names: Declared label names by column.
        passed_over: Names of the other columns.
    """

    columns: tuple[str, ...]
    rows: Iterator[dict[str, Any]]
    class_names: Mapping[str, tuple[str, ...]]
    passed_over: tuple[str, ...]


def read_parquet(path: Path, reading: Reading) -> ParquetTable:
    """Open a parquet file.

    Read are columns of single values, and those of lists and records whose names a kind of tasks
    has, such as "tokens"; class ids in a list, such as tags, are read as their names. Passed over
    are other lists and records, extension types, and values of a fixed size above 64 bytes: they
    hold neither texts nor labels.
    """
    import pyarrow
    import pyarrow.parquet

    check_size(str(path), path.stat().st_size, reading)
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            schema, rows = file.schema_arrow, file.metadata.num_rows
            groups = map(file.metadata.row_group, range(file.num_row_groups))
            size = sum(group.total_byte_size for group in groups)
        if doubled := sorted(name for name, n in Counter(schema.names).items() if n > 1):
            raise InputError(f"{path}: there are several columns called {doubled[0]!r}")
        check_row_count(str(path), rows, reading)
        held = find_kind_columns(schema.names, labelled=reading.labelled)
        columns = [field.name for field in schema if _is_read(field.type, field.name in held)]
        file = pyarrow.parquet.ParquetFile(path)
    except InputError:
        raise
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise _make_error(path, error) from None
    rows_at_once = max(1, min(_BATCH_ROWS, _BATCH_BYTES * rows // max(1, size)))
    metadata = (schema.metadata or {}).get(b"huggingface", b"{}")
    found = _read_rows(path, file, columns, reading, rows_at_once)
    if tags := read_class_names(metadata, inside=True):
        found = (name_listed_classes(row, tags) for row in found)
    passed_over = tuple(name for name in schema.names if name not in columns)
    return ParquetTable(tuple(columns), found, read_class_names(metadata), passed_over)


def read_class_names(metadata: bytes, *, inside: bool = False) -> dict[str, tuple[str, ...]]:
    """Read the label names that the datasets library writes into a parquet file's schema."""
    try:
        features = json.loads(metadata).get("info", {}).get("features", {})
        found = {
            column: feature.get("feature") if inside else feature
            for column, feature in features.items()
            if isinstance(feature, dict)
        }
        return {
            column: tuple(feature["names"])
            for column, feature in found.items()
            if isinstance(feature, dict) and feature.get("_type") == "ClassLabel"
        }
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
        # Foreign metadata under the same key is no reason to refuse the table.
        return {}


def _is_read(kind: Any, is_held: bool) -> bool:
    """Whether a column of a type is read: single values, or what a kind of tasks has."""
    import pyarrow.types as types

    if types.is_list(kind) or types.is_large_list(kind):
        return is_held and _is_read(kind.value_type, is_held)
    if types.is_struct(kind):
        parts = (kind.field(place).type for place in range(kind.num_fields))
        return is_held and all(_is_read(part, is_held) for part in parts)
    if types.is_fixed_size_binary(kind):
        return kind.byte_width <= _MAX_FIXED_BYTES
    single = (
        *(types.is_string, types.is_large_string, types.is_binary, types.is_large_binary),
        *(types.is_dictionary, types.is_primitive, types.is_decimal, types.is_null),
    )
    return any(is_one(kind) for is_one in single)


def _read_rows(
    path: Path, file: Any, columns: list[str], reading: Reading, rows_at_once: int
) -> Iterator[dict[str, Any]]:
    import pyarrow

    size = 0
    with file:
        batches = file.iter_batches(rows_at_once, columns=columns)
        while True:
            try:
                if (batch := next(batches, None)) is None:
                    return
                # A name with dots may be that of a field of another column, too.
                own = {name: batch.column(name) for name in columns}
                size += sum(column.nbytes for column in own.values())
                check_size(str(path), size, reading, unpacked=True)
                values = [_build_values(name, column) for name, column in own.items()]
            except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:
                if isinstance(error, InputError):
                    raise
                raise _make_error(path, error) from None
            for row in zip(*values, strict=True):
                yield dict(zip(columns, row, strict=True))


def _build_values(name: str, column: Any) -> list[Any]:
    """Build a column's Python values, numbers where they are dates or times that Python has not."""
    import pyarrow.types as types

    try:
        return column.to_pylist()
    except UnicodeDecodeError as error:
        raise ValueError(f"column {name!r} holds a text that is not UTF-8: {error}") from None
    except (ValueError, OverflowError, LookupError):
        if not types.is_temporal(column.type):
            raise
        number = "int32" if column.type.bit_width == 32 else "int64"
        return column.view(number).to_pylist()


def _make_error(path: Path, error: Exception) -> InputError:
    return InputError(f"{path}: not an intact parquet file ({first_line(error)})")
