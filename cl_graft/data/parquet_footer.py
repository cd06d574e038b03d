"""Sizes of the columns of a parquet file, as its footer declares them.

pyarrow tells them, too, but where they are damaged it ends the process instead of raising an error
(pyarrow 26: ``RowGroupMetaData.column`` on sizes that do not fit together). So they are read here
from the footer itself, which is written in Thrift's compact protocol
(https://parquet.apache.org/docs/file-format/metadata).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["DeclaredSize", "read_declared_sizes"]

_MAGIC = b"PAR1"
_DEEPEST = 16

# Numbers of fields in parquet.thrift.
_ROW_GROUPS, _COLUMNS, _METADATA = 4, 1, 3
_PATH, _VALUES, _UNPACKED_BYTES = 3, 5, 6

# Types of Thrift's compact protocol.
_TRUE, _FALSE, _BYTE, _INTEGERS, _DOUBLE, _BINARY = 1, 2, 3, (4, 5, 6), 7, 8
_LISTS, _MAP, _STRUCT = (9, 10), 11, 12


@dataclass(frozen=True, slots=True)
class DeclaredSize:
    """The size of a column in all groups of rows.

    Attributes:
        unpacked_bytes: Bytes of its pages once unpacked, values of a dictionary counted once.
        values: Number of its values, those in lists counted each.
    """

    unpacked_bytes: int = 0
    values: int = 0


def read_declared_sizes(path: Path) -> dict[str, DeclaredSize]:
    """Read the sizes of a file's columns.

    Returns:
        Sizes by the column's path, its parts joined by dots.

    Raises:
        ValueError: If the footer is damaged.
        OSError: If the file cannot be read.
    """
    with path.open("rb") as file:
        whole = file.seek(0, 2)
        file.seek(max(0, whole - 8))
        tail = file.read(8)
        length = int.from_bytes(tail[:4], "little")
        if tail[4:] != _MAGIC or length + 8 > whole:
            raise ValueError("no footer of a parquet file")
        file.seek(whole - 8 - length)
        footer = _Compact(file.read(length)).read_struct()
    found: dict[str, DeclaredSize] = {}
    for group in _list(footer, _ROW_GROUPS):
        for chunk in _list(group, _COLUMNS):
            about = _get(chunk, _METADATA)
            parts = [part for part in _list(about, _PATH) if isinstance(part, bytes)]
            name = b".".join(parts).decode()
            before = found.get(name, DeclaredSize())
            found[name] = DeclaredSize(
                before.unpacked_bytes + _count(about, _UNPACKED_BYTES),
                before.values + _count(about, _VALUES),
            )
    return found


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
        self._data, self._at = data, 0

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
        if size > len(self._data) - self._at:
            raise ValueError("the footer ends too early")
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
        taken = self._data[self._at : self._at + count]
        if len(taken) < count:
            raise ValueError("the footer ends too early")
        self._at += count
        return taken
