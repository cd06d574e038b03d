"""Values by (i, j) that take little memory: a stream of T tasks has T² of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class StreamMatrix(Generic[T]):
    """Values measured on experience j after the i-th training; i = -1 is before any.

    A value that equals the one above it is kept once: without forgetting, a column has one value.
    """

    def __init__(self) -> None:
        self._rows: dict[int, list[T | None]] = {}

    def __contains__(self, cell: tuple[int, int]) -> bool:
        return self.get(*cell) is not None

    def get(self, i: int, j: int) -> T | None:
        """Return the value of a cell; None if it has none."""
        row = self._rows.get(i, ())
        return row[j] if j < len(row) else None

    def set(self, i: int, j: int, value: T) -> None:
        """Set the value of a cell."""
        above = self.get(i - 1, j)
        row = self._rows.setdefault(i, [])
        row += [None] * (j + 1 - len(row))
        row[j] = above if above == value else value

    def matrix(self, columns: Sequence[int]) -> list[list[T | None]]:
        """Return the cells of as many rows as there are columns; None where there is no value."""
        return [[self.get(i, j) for j in columns] for i in range(len(columns))]

    def rows(self) -> Iterator[tuple[int, list[T | None]]]:
        """Yield i and a copy of its row, for `load_`."""
        return ((i, list(row)) for i, row in self._rows.items())

    def load_(self, rows: Sequence[tuple[int, Sequence[T | None]]]) -> None:
        """Take over what `rows` yielded."""
        self._rows.clear()
        for i, row in rows:
            for j, value in enumerate(row):
                if value is not None:
                    self.set(i, j, value)
