"""The rows of comma- and tab-separated tables: one that cannot be read costs no other."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import contextmanager

from cl_graft.data.text_files import MAX_CHARACTERS, MAX_LINE, find_lines

__all__ = ["LongLine", "allow_long_fields", "read_table_rows"]


def read_table_rows(
    text: str, delimiter: str, *, quotes: bool
) -> Iterator[tuple[int, list[str] | csv.Error]]:
    """Yield each row's first line number and its fields, or what is wrong with it.

    An open quote swallows the lines after it; reading then goes on at the line after its first, so
    that one bad row costs no other.

    Raises:
        LongLine: At a line of more than `MAX_LINE` characters.
    """
    number, offset = 1, 0
    while True:
        walk = _Lines(text, offset)
        reader = csv.reader(
            walk,
            delimiter=delimiter,
            quoting=csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE,
            strict=True,
        )
        before = 0
        while True:
            walk.first_end = None
            try:
                fields = next(reader, None)
            except csv.Error as error:
                yield number, error
                if reader.line_num > before + 1 and walk.first_end is not None:
                    number, offset = number + 1, walk.first_end
                    break
            else:
                if fields is None:
                    return
                yield number, fields
            number, before = number + reader.line_num - before, reader.line_num


class LongLine(ValueError):
    """A line is longer than any table's."""


class _Lines:
    """Iterate over the lines of a text, and remember where the first one of a row ends."""

    def __init__(self, text: str, offset: int) -> None:
        self._found = find_lines(text, offset)
        self.first_end: int | None = None

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        found = next(self._found)
        if found.end() - found.start() > MAX_LINE:
            raise LongLine(
                f"a line of {found.end() - found.start():,} characters, the limit is {MAX_LINE:,}"
            )
        if self.first_end is None:
            self.first_end = found.end()
        return found[0]


@contextmanager
def allow_long_fields() -> Iterator[None]:
    """Let the csv module read fields up to our own limit for a `with` block."""
    before = csv.field_size_limit(MAX_CHARACTERS)
    try:
        yield
    finally:
        csv.field_size_limit(before)
