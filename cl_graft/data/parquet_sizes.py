"""Sizes of the columns of a parquet file, by the headers of its pages.

A file tells them in its footer, too, but pyarrow builds what the pages hold and not what the footer
promises. Where a footer is damaged, pyarrow even ends the process instead of raising an error
(pyarrow 26: ``RowGroupMetaData.column`` on sizes that do not fit together). So both are read here;
they are written in Thrift's compact protocol (https://parquet.apache.org/docs/file-format).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

__all__ = ["ColumnSize", "read_column_sizes"]

_MAGIC = b"PAR1"
_DEEPEST = 16
_HEADER_BYTES = (1 << 12, 1 << 16, 1 << 20, 1 << 24)
"""How many bytes are tried for the header of a page, which holds statistics of any length."""

# Numbers of fields in parquet.thrift: of the footer, of a chunk of a column, of a page.
_ROW_GROUPS, _COLUMNS, _METADATA = 4, 1, 3
_PATH, _VALUES, _DATA_PLACE, _DICTIONARY_PLACE = 3, 5, 9, 11
_PAGE_TYPE, _UNPACKED, _PACKED, _VALUES_IN_PAGE = 1, 2, 3, 1
_DATA_PAGES = {0: (5, 2), 3: (8, 4)}
"""Types of pages with data: the field that describes the data, and in it that of the encoding."""
_SHARED_PREFIXES = 7
"""The encoding DELTA_BYTE_ARRAY."""

# Types of Thrift's compact protocol.
_TRUE, _FALSE, _BYTE, _INTEGERS, _DOUBLE, _BINARY = 1, 2, 3, (4, 5, 6), 7, 8
_LISTS, _MAP, _STRUCT = (9, 10), 11, 12


@dataclass(frozen=True, slots=True)
class ColumnSize:
    """The size of a column in all groups of rows.

    Attributes:
        unpacked_bytes: Bytes of its pages once unpacked, values of a dictionary counted once.
        values: Number of its values, those in lists counted each.
        largest_page: Bytes of its largest page once unpacked. No value is longer.
        shares_prefixes: Whether a page stores of a value what the value before does not begin
            with, so that values may have more bytes together than their page.
    """

    unpacked_bytes: int = 0
    values: int = 0
    largest_page: int = 0
    shares_prefixes: bool = False


def read_column_sizes(path: Path, columns: Collection[str]) -> dict[str, ColumnSize]:
    """Read the sizes of columns of a file.

    Args:
        path: The file.
        columns: Paths of columns in its schema, their parts joined by dots.

    Returns:
        Sizes by such a path.

    Raises:
        ValueError: If the footer or the header of a page is damaged.
        OSError: If the file cannot be read.
    """
    found = dict.fromkeys(columns, ColumnSize())
    with path.open("rb") as file:
        whole = file.seek(0, 2)
        tail = _read_at(file, max(0, whole - 8), 8)
        length = int.from_bytes(tail[:4], "little")
        if tail[4:] != _MAGIC or length + 8 > whole:
            raise ValueError("no footer of a parquet file")
        footer = _Compact(_read_at(file, whole - 8 - length, length)).read_struct()
        for group in _list(footer, _ROW_GROUPS):
            for chunk in _list(group, _COLUMNS):
                about = _get(chunk, _METADATA)
                parts = [part for part in _list(about, _PATH) if isinstance(part, bytes)]
                name = b".".join(parts).decode()
                if name in found:
                    for page in _read_pages(file, about):
                        found[name] = _add(found[name], page)
    return found


def _read_pages(file: BinaryIO, chunk: object) -> Iterator[ColumnSize]:
    """Read the sizes of a chunk's pages, as many as its values take."""
    place, dictionary = _count(chunk, _DATA_PLACE), _get(chunk, _DICTIONARY_PLACE)
    if isinstance(dictionary, int) and 0 < dictionary < place:
        place = dictionary
    values, expected = 0, _count(chunk, _VALUES)
    while values < expected:
        header, length = _read_header(file, place)
        unpacked, page = _count(header, _UNPACKED), ColumnSize()
        if (kind := _get(header, _PAGE_TYPE)) in _DATA_PAGES:
            field, encoding = _DATA_PAGES[kind]
            data = _get(header, field)
            shares = _get(data, encoding) == _SHARED_PREFIXES
            page = ColumnSize(values=_count(data, _VALUES_IN_PAGE), shares_prefixes=shares)
        yield replace(page, unpacked_bytes=unpacked, largest_page=unpacked)
        values += page.values
        place += length + _count(header, _PACKED)


def _read_header(file: BinaryIO, place: int) -> tuple[dict[int, Any], int]:
    for most in _HEADER_BYTES:
        data = _read_at(file, place, most)
        reader = _Compact(data)
        try:
            return reader.read_struct(), reader.place
        except ValueError:
            if len(data) < most or most == _HEADER_BYTES[-1]:
                raise
    raise AssertionError  # the last round returns or raises


def _add(size: ColumnSize, page: ColumnSize) -> ColumnSize:
    return ColumnSize(
        size.unpacked_bytes + page.unpacked_bytes,
        size.values + page.values,
        max(size.largest_page, page.largest_page),
        size.shares_prefixes or page.shares_prefixes,
    )


def _read_at(file: BinaryIO, place: int, count: int) -> bytes:
    file.seek(place)
    return file.read(count)


def _get(struct: object, field: int) -> Any:
    return struct.get(field) if isinstance(struct, Mapping) else None


def _list(struct: object, field: int) -> list[Any]:
    if not isinstance(value := _get(struct, field), list):
        raise ValueError(f"field {field} is no list")
    return value


def _count(struct: object, field: int) -> int:
    if not isinstance(value := _get(struct, field), int) or value < 0:
        raise ValueError(f"field {field} is no size")
    return value


class _Compact:
    """A reader of Thrift's compact protocol; fields of structs by number."""

    def __init__(self, data: bytes) -> None:
        self._data, self.place = data, 0

    def read_struct(self, depth: int = 0) -> dict[int, Any]:
        fields: dict[int, Any] = {}
        number = 0
        while header := self._take(1)[0]:
            number = number + (header >> 4) if header >> 4 else self._read_integer()
            fields[number] = self._read(header & 15, depth)
        return fields

    def _read(self, kind: int, depth: int, *, in_list: bool = False) -> Any:
        if depth > _DEEPEST:
            raise ValueError("values too deep in each other")
        if kind in (_TRUE, _FALSE):
            return self._take(1)[0] == _TRUE if in_list else kind == _TRUE
        if kind == _BYTE:
            return self._take(1)[0]
        if kind in _INTEGERS:
            return self._read_integer()
        if kind == _DOUBLE:
            return self._take(8)
        if kind == _BINARY:
            return self._take(self._read_size())
        if kind == _STRUCT:
            return self.read_struct(depth + 1)
        if kind in _LISTS:
            header = self._take(1)[0]
            size = header >> 4 if header >> 4 < 15 else self._read_size()
            return [self._read(header & 15, depth + 1, in_list=True) for _ in range(size)]
        if kind == _MAP:
            size = self._read_size()
            kinds = self._take(1)[0] if size else 0
            return [
                self._read(one, depth + 1, in_list=True)
                for _ in range(size)
                for one in (kinds >> 4, kinds & 15)
            ]
        raise ValueError(f"no type {kind}")

    def _read_size(self) -> int:
        """Read the number of bytes, or of elements, of what follows: at least a byte each."""
        size = self._read_unsigned()
        if size > len(self._data) - self.place:
            raise ValueError("the footer or a page ends too early")
        return size

    def _read_integer(self) -> int:
        folded = self._read_unsigned()
        return (folded >> 1) ^ -(folded & 1)

    def _read_unsigned(self) -> int:
        value, shift = 0, 0
        while True:
            byte = self._take(1)[0]
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 63:
                raise ValueError("a number of more than 64 bits")

    def _take(self, count: int) -> bytes:
        taken = self._data[self.place : self.place + count]
        if len(taken) < count:
            raise ValueError("the footer or a page ends too early")
        self.place += count
        return taken
