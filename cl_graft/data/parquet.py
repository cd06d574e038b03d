"""Rows of parquet files, measured before they are built: a small file can hold very large rows.

A value that repeats stands once in a file's dictionary, and some bytes say that a million rows have
it. So sizes are checked twice: when the file is opened, those of its pages, where a dictionary
counts once; and for each batch of rows, before Python values are built of it, the lengths of its
values, each as often as rows have it. Until then columns of text stay dictionaries. Where texts are
stored by what they share with the text before, pyarrow can make no dictionary; a batch has fewer
rows then.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from cl_graft.data.labels import name_listed_classes
from cl_graft.data.parquet_lengths import check_lengths
from cl_graft.data.parquet_sizes import ColumnSize, Levels, read_column_sizes
from cl_graft.data.text_files import Reading, check_row_count, check_size
from cl_graft.errors import InputError, first_line
from cl_graft.kinds.kind import find_kind_columns

__all__ = ["ParquetTable", "read_class_names", "read_parquet"]

_ROWS_AT_A_TIME = 1000
_MOST_FIXED_BYTES = 64
_FIXED_BYTES = {
    **{"BYTE_ARRAY": 0, "BOOLEAN": 1, "INT32": 4, "FLOAT": 4},
    **{"INT64": 8, "DOUBLE": 8, "INT96": 12},
}
_BYTES_A_LISTED_VALUE = 8
"""Bytes in memory of a value in a list, at least."""


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
    are other lists and records, texts of an extension type, and values of a fixed size above 64
    bytes: they hold neither texts nor labels, and a few rows of them can fill the memory.

    Raises:
        InputError: Here or while rows are read, if the file is damaged or too large.
    """
    check_size(str(path), path.stat().st_size, reading)
    # pyarrow comes with datasets and takes a moment to import; other formats do without it.
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(str(path)) as file:
            schema, leaves = file.schema_arrow, _find_leaves(file, reading)
            rows, columns = file.metadata.num_rows, len(file.schema)
        names = tuple(schema.names)
        if doubled := sorted(name for name, count in Counter(names).items() if count > 1):
            raise InputError(f"{path}: there are several columns called {doubled[0]!r}")
        check_row_count(str(path), rows, reading)
        levels = {leaf.place: leaf.levels for leaf in leaves}
        sizes = read_column_sizes(path, columns=columns, levels=levels)
        _refuse_unmeasured_lists(path, leaves, sizes)
        check_size(str(path), _measure_pages(leaves, sizes), reading, unpacked=True)
        for place, size in sizes.items():
            if size.pages_with_lengths:
                check_lengths(path, size.pages_with_lengths, levels[place])
        texts = [leaf for leaf in leaves if leaf.is_text]
        dictionaries = [leaf.path for leaf in texts if not sizes[leaf.place].pages_with_lengths]
        file = pyarrow.parquet.ParquetFile(str(path), read_dictionary=dictionaries)
    except InputError:
        raise
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise _make_error(path, error) from None
    metadata = (schema.metadata or {}).get(b"huggingface", b"{}")
    # An extension type is read as its storage, with every value built at once.
    types = dict(zip(names, file.schema_arrow.types, strict=True))
    single = {leaf.column for leaf in texts if not leaf.is_inner}
    read = {
        leaf.column: None
        for leaf in leaves
        if leaf.column not in single or _is_text(types[leaf.column])
    }
    longest = sum(_measure_longest_value(leaf, sizes[leaf.place]) for leaf in leaves)
    at_once = max(1, min(_ROWS_AT_A_TIME, reading.most_bytes // max(1, longest)))
    places = [leaf.place for leaf in leaves if leaf.column in read]
    found = _read_rows(path, file, places, reading, at_once)
    if tags := read_class_names(metadata, inside=True):
        found = (name_listed_classes(row, tags) for row in found)
    passed_over = tuple(name for name in names if name not in read)
    return ParquetTable(tuple(read), found, read_class_names(metadata), passed_over)


def read_class_names(metadata: bytes, *, inside: bool = False) -> dict[str, tuple[str, ...]]:
    """Read the label names that the datasets library writes into a parquet file's schema.

    Args:
        metadata: What the schema holds under "huggingface".
        inside: Whether those of class ids in lists are asked for.
    """
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


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A leaf column in parquet's sense: single values, or one field inside lists or records."""

    column: str
    path: str
    place: int
    levels: Levels
    is_text: bool
    is_inner: bool
    fixed_bytes: int
    """Bytes of a value, where all have as many; 0 for texts."""


def _find_leaves(file: Any, reading: Reading) -> list[_Leaf]:
    """Return what is to be read: single values, and lists and records that a kind of tasks has."""
    held = find_kind_columns(file.schema_arrow.names, labelled=reading.labelled)
    leaves, number = [], 0
    for field in file.schema_arrow:
        count = _count_leaves(field.type)
        parts = {place: file.schema.column(place) for place in range(number, number + count)}
        number, first = number + count, parts[number]
        inner = count != 1 or first.max_repetition_level or first.path != first.name
        if inner and not (field.name in held and _is_plain(field.type)):
            continue
        if any(
            part.physical_type == "FIXED_LEN_BYTE_ARRAY" and part.length > _MOST_FIXED_BYTES
            for part in parts.values()
        ):
            continue
        leaves += [
            _Leaf(
                column=field.name,
                path=part.path,
                place=place,
                levels=Levels(part.max_repetition_level, part.max_definition_level),
                is_text=part.physical_type == "BYTE_ARRAY",
                is_inner=bool(inner),
                fixed_bytes=_FIXED_BYTES.get(part.physical_type, part.length or 0),
            )
            for place, part in parts.items()
        ]
    return leaves


def _count_leaves(kind: Any) -> int:
    kind = getattr(kind, "storage_type", kind)
    if not kind.num_fields:
        return 1
    return sum(_count_leaves(kind.field(place).type) for place in range(kind.num_fields))


def _is_plain(kind: Any) -> bool:
    """Whether a type is made of lists, records, texts and numbers."""
    import pyarrow.types as types

    if types.is_list(kind) or types.is_large_list(kind):
        return _is_plain(kind.value_type)
    if types.is_struct(kind):
        return all(_is_plain(kind.field(place).type) for place in range(kind.num_fields))
    single = types.is_string, types.is_large_string, types.is_dictionary, types.is_primitive
    return any(is_one(kind) for is_one in single)


def _is_text(kind: Any) -> bool:
    """Whether a type is one of texts, or of a dictionary of texts."""
    import pyarrow.types as types

    return any(
        is_one(kind)
        for is_one in (
            *(types.is_dictionary, types.is_string, types.is_large_string),
            *(types.is_binary, types.is_large_binary),
        )
    )


def _measure_longest_value(leaf: _Leaf, size: ColumnSize) -> int:
    """Return how many bytes a row's value may take in memory before it is counted."""
    return size.largest_page if size.pages_with_lengths else leaf.fixed_bytes


def _measure_pages(leaves: list[_Leaf], sizes: Mapping[int, ColumnSize]) -> int:
    """Return how many bytes columns have unpacked, dictionaries counted once.

    Each value in a list adds what it takes in memory at least, as a file can hold a million equal
    ones in a few bytes.
    """
    whole = 0
    for leaf in leaves:
        size = sizes[leaf.place]
        whole += size.unpacked_bytes + leaf.is_inner * _BYTES_A_LISTED_VALUE * size.values
    return whole


def _refuse_unmeasured_lists(
    path: Path, leaves: list[_Leaf], sizes: Mapping[int, ColumnSize]
) -> None:
    """Refuse lists of texts whose size shows only once they are read.

    Raises:
        InputError: If there are any.
    """
    for leaf in leaves:
        size = sizes[leaf.place]
        measured = sum(page.values for page in size.pages_with_lengths)
        if leaf.is_inner and (size.shares_prefixes or 0 < measured < size.values):
            raise InputError(
                f"{path}: column {leaf.column!r} has lists of texts in parquet's encoding "
                "DELTA_BYTE_ARRAY, or in several, so that their size cannot be told before they "
                "are read; write the file with another encoding (pyarrow's default is one)"
            )


def _measure(column: Any) -> int:
    """Return the bytes of a column's values, each as often as rows have it."""
    import pyarrow
    import pyarrow.compute

    if pyarrow.types.is_struct(column.type):
        return sum(map(_measure, column.flatten()))
    if pyarrow.types.is_list(column.type) or pyarrow.types.is_large_list(column.type):
        return _BYTES_A_LISTED_VALUE * len(column) + _measure(column.flatten())
    if not pyarrow.types.is_dictionary(column.type):
        return column.nbytes
    if pyarrow.types.is_primitive(column.type.value_type):
        return column.indices.nbytes + column.type.value_type.bit_width * len(column) // 8
    lengths = pyarrow.compute.call_function("binary_length", [column.dictionary])
    taken = lengths.take(column.indices).sum()
    return column.indices.nbytes + (taken.as_py() or 0)


def _read_rows(
    path: Path, file: Any, places: list[int], reading: Reading, rows_at_a_time: int
) -> Iterator[dict[str, Any]]:
    import pyarrow

    size = 0
    with file:
        # Each group of rows has its own dictionaries, and lists cannot be read from two at once.
        # Columns are asked for by place, as a name with dots may be that of several.
        batches = chain.from_iterable(
            file.reader.iter_batches(rows_at_a_time, row_groups=[group], column_indices=places)
            for group in range(file.num_row_groups)
        )
        while True:
            try:
                batch = next(batches, None)
                if batch is None:
                    return
                size += sum(_measure(column) for column in batch.columns)
                rows = _build_rows(batch) if size <= reading.most_bytes else []
            except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:
                raise _make_error(path, error) from None
            check_size(str(path), size, reading, unpacked=True)
            yield from rows


def _build_rows(batch: Any) -> list[dict[str, Any]]:
    names, columns = batch.schema.names, []
    for name, column in zip(names, batch.columns, strict=True):
        try:
            columns.append(_build_values(column))
        except UnicodeDecodeError as error:
            raise ValueError(f"column {name!r} holds a text that is not UTF-8: {error}") from None
    return [
        {name: column[row] for name, column in zip(names, columns, strict=True)}
        for row in range(batch.num_rows)
    ]


def _build_values(column: Any) -> list[Any]:
    """Build a column's Python values, numbers where they are dates or times that Python has not."""
    import pyarrow.types as types

    try:
        return column.to_pylist()
    except (ValueError, OverflowError, LookupError):
        if not types.is_temporal(column.type):
            raise
        number = "int32" if column.type.bit_width == 32 else "int64"
        return column.view(number).to_pylist()


def _make_error(path: Path, error: Exception) -> InputError:
    return InputError(f"{path}: not an intact parquet file ({first_line(error)})")
