"""Structs in Thrift's compact protocol, in which parquet writes its footers and headers of pages.

The format is that of https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md.
"""

from __future__ import annotations

from typing import Any

__all__ = ["Struct", "read_struct", "read_unsigned"]

_DEEPEST = 16
_HIGHEST_FIELD = (1 << 15) - 1

_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_NUMBERS = {16: _I16, 32: _I32, 64: _I64}


class Struct(dict[int, tuple[int, Any]]):
    """Fields of a struct by number: the type of each, and its value.

    A field of another type than asked for is an error, as other readers pass over it.
    """

    def count(self, number: int, *, bits: int = 64) -> int:
        """Return a whole number that is not negative.

        Raises:
            ValueError: If the field is missing, of another type, or negative.
        """
        value = self._get(number, _NUMBERS[bits])
        if not 0 <= value < 1 << (bits - 1):
            raise ValueError(f"field {number} is {value}, expected a size")
        return value

    def struct(self, number: int) -> Struct:
        """Return a struct.

        Raises:
            ValueError: If the field is missing or of another type.
        """
        return self._get(number, _STRUCT)

    def structs(self, number: int) -> list[Struct]:
        """Return a list of structs.

        Raises:
            ValueError: If the field is missing or of another type.
        """
        kind, values = self._get(number, _LIST)
        if values and kind != _STRUCT:
            raise ValueError(f"field {number} is a list of the type {kind}, expected structs")
        return values

    def is_true(self, number: int, *, default: bool) -> bool:
        """Return a field that is true or false.

        Raises:
            ValueError: If the field is of another type.
        """
        return self._get(number, _TRUE, _FALSE) if number in self else default

    def _get(self, number: int, *kinds: int) -> Any:
        if number not in self:
            raise ValueError(f"field {number} is missing")
        kind, value = self[number]
        if kind not in kinds:
            raise ValueError(f"field {number} has the type {kind}, expected {kinds[0]}")
        return value


def read_struct(data: bytes, *, most_values: int | None = None) -> tuple[Struct, int]:
    """Read the struct at the start of some bytes.

    Args:
        data: The bytes.
        most_values: How many values it may have, those within others counted too.

    Returns:
        The struct, and the number of its bytes.

    Raises:
        ValueError: If there is none, or one of more values.
    """
    reader = _Reader(data, len(data) if most_values is None else most_values)
    return reader.read_struct(), reader.place


def read_unsigned(data: bytes, place: int) -> tuple[int, int]:
    """Read a number of seven bits a byte, the lowest first.

    Returns:
        The number, and the place behind it.

    Raises:
        ValueError: If it does not end within the data, or has more than 64 bits.
    """
    value = 0
    for shift, byte in zip(range(0, 64, 7), data[place : place + 10], strict=False):
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place + 1 + shift // 7
    raise ValueError("a number of more than 64 bits, or one that ends too early")


class _Reader:
    def __init__(self, data: bytes, most_values: int) -> None:
        self._data, self.place, self._left = data, 0, most_values

    def read_struct(self, depth: int = 0) -> Struct:
        fields, number = Struct(), 0
        while header := self._take(1)[0]:
            number = number + (header >> 4) if header >> 4 else self._read_integer()
            if number in fields or not 0 < number <= _HIGHEST_FIELD:
                raise ValueError(f"field {number} stands twice or cannot be")
            fields[number] = header & 15, self._read(header & 15, depth)
        return fields

    def _read(self, kind: int, depth: int, *, in_list: bool = False) -> Any:
        self._left -= 1
        if depth > _DEEPEST or self._left < 0:
            raise ValueError("values too deep in each other, or too many")
        if kind in (_TRUE, _FALSE):
            return self._take(1)[0] == _TRUE if in_list else kind == _TRUE
        if kind == _BYTE:
            return self._take(1)[0]
        if kind in _NUMBERS.values():
            return self._read_integer()
        if kind == _DOUBLE:
            return self._take(8)
        if kind == _BINARY:
            return self._take(self._read_size())
        if kind == _STRUCT:
            return self.read_struct(depth + 1)
        if kind in (_LIST, _SET):
            header = self._take(1)[0]
            size = header >> 4 if header >> 4 < 15 else self._read_size()
            own = header & 15
            return own, [self._read(own, depth + 1, in_list=True) for _ in range(size)]
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
            raise ValueError("the data end too early")
        return size

    def _read_integer(self) -> int:
        folded = self._read_unsigned()
        return (folded >> 1) ^ -(folded & 1)

    def _read_unsigned(self) -> int:
        value, self.place = read_unsigned(self._data, self.place)
        return value

    def _take(self, count: int) -> bytes:
        taken = self._data[self.place : self.place + count]
        if len(taken) < count:
            raise ValueError("the data end too early")
        self.place += count
        return taken
