"""Rows of parquet files, read in parts so that a small file cannot fill the memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cl_graft.errors import InputError
from cl_graft.tasks.text_files import Reading, check_size

__all__ = ["class_names", "read_parquet"]

_ROWS_AT_A_TIME = 1000


def read_parquet(
    path: Path, reading: Reading
) -> tuple[tuple[str, ...], Iterator[dict[str, Any]], dict[str, tuple[str, ...]]]:
    """Open a parquet file.

    Returns:
        The names of its columns; its rows, read as they are asked for; declared label names by
        column.

    Raises:
        InputError: Here or while rows are read, if the file is damaged or too large.
    """
    # pyarrow comes with datasets and takes a moment to import; other formats do without it.
    import pyarrow
    import pyarrow.parquet

    try:
        file = pyarrow.parquet.ParquetFile(str(path))
        schema = file.schema_arrow
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise _damaged(path, error) from None
    names = tuple(schema.names)
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise InputError(f"{path}: there are several columns called {doubled[0]!r}")
    metadata = (schema.metadata or {}).get(b"huggingface", b"{}")
    return names, _rows(path, file, reading), class_names(metadata)


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


def _rows(path: Path, file: Any, reading: Reading) -> Iterator[dict[str, Any]]:
    import pyarrow

    size = 0
    with file:
        batches = file.iter_batches(batch_size=_ROWS_AT_A_TIME)
        while True:
            try:
                batch = next(batches, None)
                if batch is None:
                    return
                size += batch.nbytes
                rows = batch.to_pylist() if size <= reading.most_bytes else []
            except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:
                raise _damaged(path, error) from None
            check_size(str(path), size, reading, unpacked=True)
            yield from rows


def _damaged(path: Path, error: Exception) -> InputError:
    reason = (str(error).strip() or type(error).__name__).split("\n", 1)[0]
    return InputError(f"{path}: not an intact parquet file ({reason})")
