"""Rows of parquet files, measured before they are built: a small file can hold very large rows.

A value that repeats stands once in a file's dictionary, and some bytes say that a million rows have
it. So columns of text stay dictionaries while they are read, and the size of the rows is added up
from the lengths of their values.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cl_graft.data.text_files import Reading, check_row_count, check_size
from cl_graft.errors import InputError, first_line

__all__ = ["class_names", "read_parquet"]

_ROWS_AT_A_TIME = 1000
_MOST_FIXED_BYTES = 64


def read_parquet(
    path: Path, reading: Reading
) -> tuple[tuple[str, ...], Iterator[dict[str, Any]], dict[str, tuple[str, ...]]]:
    """Open a parquet file.

    Columns of lists, of records, of extension types, or of values of one large size are passed
    over: they hold neither texts nor labels, and a few rows of them can fill the memory.

    Returns:
        The names of its columns; its rows, read as they are asked for; declared label names by
        column.

    Raises:
        InputError: Here or while rows are read, if the file is damaged or too large.
    """
    check_size(str(path), path.stat().st_size, reading)
    # pyarrow comes with datasets and takes a moment to import; other formats do without it.
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(str(path)) as file:
            schema, flat, texts = file.schema_arrow, *_find_columns(file)
            rows, declared = file.metadata.num_rows, _read_declared_size(file.metadata, flat)
        file = pyarrow.parquet.ParquetFile(str(path), read_dictionary=texts)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise _make_error(path, error) from None
    names = tuple(schema.names)
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise InputError(f"{path}: there are several columns called {doubled[0]!r}")
    check_row_count(str(path), rows, reading)
    check_size(str(path), declared, reading, unpacked=True)
    metadata = (schema.metadata or {}).get(b"huggingface", b"{}")
    # An extension type is read as its storage, with every value built at once.
    types = dict(zip(names, file.schema_arrow.types, strict=True))
    flat = [n for n in flat if n not in texts or pyarrow.types.is_dictionary(types[n])]
    return tuple(flat), _read_rows(path, file, flat, reading), class_names(metadata)


def class_names(metadata: bytes) -> dict[str, tuple[str, ...]]:
    """Read the label names that the datasets library writes into a parquet file's schema."""
    try:
        features = json.loads(metadata).get("info", {}).get("features", {})
        return {
            column: tuple(feature["names"])
            for column, feature in features.items()
            if isinstance(feature, dict) and feature.get("_type") == "ClassLabel"
        }
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
        # Foreign metadata under the same key is no reason to refuse the table.
        return {}


def _find_columns(file: Any) -> tuple[list[str], list[str]]:
    """Return the columns of single values, and those of them that are texts or bytes."""
    flat, texts = [], []
    for number in range(len(file.schema)):
        column = file.schema.column(number)
        if column.max_repetition_level or column.path != column.name:
            continue
        if column.physical_type == "FIXED_LEN_BYTE_ARRAY" and column.length > _MOST_FIXED_BYTES:
            continue
        flat.append(column.name)
        if column.physical_type == "BYTE_ARRAY":
            texts.append(column.name)
    return flat, texts


def _read_declared_size(metadata: Any, flat: list[str]) -> int:
    """Return how many bytes columns have unpacked, dictionaries counted once, as the file says."""
    groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
    columns = (group.column(number) for group in groups for number in range(group.num_columns))
    return sum(c.total_uncompressed_size for c in columns if c.path_in_schema in flat)


def _measure(column: Any) -> int:
    """Return the bytes of a column's values, each as often as rows have it."""
    import pyarrow
    import pyarrow.compute

    if not pyarrow.types.is_dictionary(column.type):
        return column.nbytes
    if pyarrow.types.is_primitive(column.type.value_type):
        return column.indices.nbytes + column.type.value_type.bit_width * len(column) // 8
    lengths = pyarrow.compute.call_function("binary_length", [column.dictionary])
    taken = lengths.take(column.indices).sum()
    return column.indices.nbytes + (taken.as_py() or 0)


def _read_rows(
    path: Path, file: Any, flat: list[str], reading: Reading
) -> Iterator[dict[str, Any]]:
    import pyarrow

    size = 0
    with file:
        batches = file.iter_batches(batch_size=_ROWS_AT_A_TIME, columns=flat)
        while True:
            try:
                batch = next(batches, None)
                if batch is None:
                    return
                size += sum(_measure(column) for column in batch.columns)
                rows = batch.to_pylist() if size <= reading.most_bytes else []
            except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:
                raise _make_error(path, error) from None
            check_size(str(path), size, reading, unpacked=True)
            yield from rows


def _make_error(path: Path, error: Exception) -> InputError:
    return InputError(f"{path}: not an intact parquet file ({first_line(error)})")
