"""Sizes of the columns of a parquet file, by the headers of its pages.

A file tells them in its footer, too, but pyarrow builds what the pages hold and not what the footer
promises. Where a footer is damaged, pyarrow even ends the process instead of raising an error
(pyarrow 26: ``RowGroupMetaData.column`` on sizes that do not fit together). So both are read here,
as strictly as possible: what pyarrow might read in another way is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from cl_graft.data.thrift import Struct, read_struct

__all__ = ["ColumnSize", "Levels", "Page", "read_column_sizes"]

_MAGIC = b"PAR1"
_HEADER_BYTES = (1 << 12, 1 << 16, 1 << 20, 1 << 24)
"""Bytes that are tried for the header of a page, which holds statistics of any length."""
_VALUES_IN_HEADER = 1000
"""Most values in the header of a page; the format knows some dozens."""
_SPARE_PAGES = 1000
"""Pages that a column may have in a group of rows beyond one for each of its values."""

# Numbers of fields in parquet.thrift.
_ROWS, _ROW_GROUPS = 3, 4  # of the footer
_CHUNKS, _ROWS_OF_GROUP = 1, 3
_METADATA = 3  # of a chunk of a column
_CODEC, _VALUES, _DATA_PLACE, _DICTIONARY_PLACE = 4, 5, 9, 11
_PAGE_TYPE, _UNPACKED, _PACKED = 1, 2, 3
_DATA_PAGES = {0: (5, 2), 3: (8, 4)}
"""Types of pages with data: the field that describes the data, and in it that of the encoding."""
_VALUES_IN_PAGE = 1

_TEXTS_BY_LENGTH, _TEXTS_BY_PREFIX = 6, 7
"""The encodings DELTA_LENGTH_BYTE_ARRAY and DELTA_BYTE_ARRAY."""


@dataclass(frozen=True, slots=True)
class Levels:
    """The levels of a leaf column: how deep its values lie in lists, and in what may be missing."""

    repetition: int
    definition: int


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a column.

    Attributes:
        place: Position of its body in the file.
        packed: Bytes of its body.
        in_file: Bytes of its header and body.
        unpacked: Bytes of its body once unpacked.
        codec: Number of the codec that packed it.
        values: Number of its values; 0 if it is one of a dictionary.
        encoding: Number of the encoding of its values.
        data: What its header says of its values.
        version: Version of its header, 1 or 2.
    """

    place: int
    packed: int
    in_file: int
    unpacked: int
    codec: int
    values: int = 0
    encoding: int = 0
    data: Struct = field(default_factory=Struct)
    version: int = 1

    @property
    def shares_prefixes(self) -> bool:
        """Whether it stores only the end of a text that begins as the text before does."""
        return self.encoding == _TEXTS_BY_PREFIX

    @property
    def has_lengths(self) -> bool:
        """Whether it has a list of lengths before its texts, which pyarrow counts anew."""
        return self.encoding in (_TEXTS_BY_LENGTH, _TEXTS_BY_PREFIX)


@dataclass(frozen=True, slots=True)
class ColumnSize:
    """The size of a leaf column in all groups of rows.

    Attributes:
        unpacked_bytes: Bytes of its pages once unpacked, values of a dictionary counted once.
        values: Number of its values, those in lists counted each.
        largest_page: Bytes of its largest page once unpacked. No value is longer.
        pages_with_lengths: Those of its pages that have a list of lengths before their texts.
    """

    unpacked_bytes: int = 0
    values: int = 0
    largest_page: int = 0
    pages_with_lengths: tuple[Page, ...] = ()

    @property
    def shares_prefixes(self) -> bool:
        """Whether a page shares prefixes, so that its values may have more bytes than it has."""
        return any(page.shares_prefixes for page in self.pages_with_lengths)


def read_column_sizes(
    path: Path, *, columns: int, levels: Mapping[int, Levels]
) -> dict[int, ColumnSize]:
    """Read the sizes of leaf columns of a file.

    Args:
        path: The file.
        columns: Number of leaf columns in its schema.
        levels: Levels of those that are asked for, by their place in the schema.

    Returns:
        Sizes by place.

    Raises:
        ValueError: If the footer or the header of a page is damaged, or says what cannot be.
        OSError: If the file cannot be read.
    """
    found = dict.fromkeys(levels, ColumnSize())
    with path.open("rb") as file:
        left = whole = file.seek(0, 2)
        footer = _read_footer(file, whole)
        counted = 0
        for group in footer.structs(_ROW_GROUPS):
            rows, chunks = group.count(_ROWS_OF_GROUP), group.structs(_CHUNKS)
            if len(chunks) != columns:
                raise ValueError(f"a group of rows has {len(chunks)} columns, not {columns}")
            for place, own in levels.items():
                pages = list(_read_pages(file, chunks[place].struct(_METADATA)))
                left -= sum(page.in_file for page in pages)
                if left < 0:
                    raise ValueError(f"pages of more than the file's {whole} bytes")
                values = sum(page.values for page in pages)
                if values < rows or (values > rows and not own.repetition):
                    raise ValueError(f"{values} values in {rows} rows")
                found[place] = _add(found[place], pages, values)
            counted += rows
        if counted != (rows := footer.count(_ROWS)):
            raise ValueError(f"{counted} rows in its groups, {rows} in the file")
    return found


def _read_footer(file: BinaryIO, whole: int) -> Struct:
    tail = _read_at(file, max(0, whole - 8), 8)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != _MAGIC or length + 8 > whole:
        raise ValueError("no footer of a parquet file")
    return read_struct(_read_at(file, whole - 8 - length, length))[0]


def _read_pages(file: BinaryIO, chunk: Struct) -> Iterator[Page]:
    """Read a chunk's pages, as many as its values take."""
    place, codec = chunk.count(_DATA_PLACE), chunk.count(_CODEC, bits=32)
    if _DICTIONARY_PLACE in chunk and 0 < (start := chunk.count(_DICTIONARY_PLACE)) < place:
        place = start
    values, expected = 0, chunk.count(_VALUES)
    most = expected + _SPARE_PAGES
    while values < expected:
        header, length = _read_header(file, place)
        body = place + length
        unpacked, packed = (header.count(number, bits=32) for number in (_UNPACKED, _PACKED))
        page = Page(body, packed, length + packed, unpacked, codec)
        if (kind := header.count(_PAGE_TYPE, bits=32)) in _DATA_PAGES:
            about, encoding = _DATA_PAGES[kind]
            data = header.struct(about)
            page = replace(
                page,
                values=data.count(_VALUES_IN_PAGE, bits=32),
                encoding=data.count(encoding, bits=32),
                data=data,
                version=1 if kind == 0 else 2,
            )
        yield page
        values, place, most = values + page.values, body + packed, most - 1
        if most < 0:
            raise ValueError(f"more than {expected + _SPARE_PAGES} pages for {expected} values")


def _read_header(file: BinaryIO, place: int) -> tuple[Struct, int]:
    *first, last = _HEADER_BYTES
    for most in first:
        with suppress(ValueError):  # it may be longer
            return read_struct(_read_at(file, place, most), most_values=_VALUES_IN_HEADER)
    return read_struct(_read_at(file, place, last), most_values=_VALUES_IN_HEADER)


def _add(size: ColumnSize, pages: list[Page], values: int) -> ColumnSize:
    return ColumnSize(
        size.unpacked_bytes + sum(page.unpacked for page in pages),
        size.values + values,
        max([size.largest_page, *(page.unpacked for page in pages)]),
        size.pages_with_lengths + tuple(page for page in pages if page.has_lengths),
    )


def _read_at(file: BinaryIO, place: int, count: int) -> bytes:
    file.seek(place)
    return file.read(count)
