"""The rows of comma- and tab-separated tables: one that cannot be read costs no other."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from cl_graft.data.text_files import MAX_CHARACTERS, MAX_LINE, EncodedText, find_lines

__all__ = ["Dialect", "LongLine", "allow_long_fields", "choose_dialects", "read_table_rows"]

_QUOTED = re.compile('"[^"]*(?:"|$)')
_SEPARATOR_LINE = re.compile(r'"?sep=(.)"?[ \t]*(?:\r\n?|\n)', re.IGNORECASE)
_DELIMITERS = ",;\t|"
_NULL = re.compile(r"(?<![^,;\t|])\\N(?=[,;\t|\r\n]|$)")


@dataclass(frozen=True, slots=True)
class Dialect:
    """How the fields of a table are written.

    Attributes:
        delimiter: Character between fields.
        quotes: Whether quotes enclose fields; else they are characters of a text.
        backslash: Whether a backslash makes the next character a part of the text, as in the dumps
            of MySQL.
        start: Offset at which the table begins.
    """

    delimiter: str
    quotes: bool = True
    backslash: bool = False
    start: int = 0


def choose_dialects(text: str | EncodedText, kind: str) -> list[Dialect]:
    """Return the ways in which a table may be written, the likeliest first.

    Its fields are parted by what a first line ``sep=;`` says, as Excel reads it, or by what the
    header holds most of outside of quotes; those of a `.tsv` by tabs.

    Args:
        text: The table, not empty.
        kind: ``"csv"`` or ``"tsv"``.
    """
    said = _SEPARATOR_LINE.match(text if isinstance(text, str) else text.start())
    start = said.end() if said else 0
    if said and not isinstance(text, str):
        start = text.count_bytes(said[0])
    if said:
        delimiter = said[1]
    elif kind == "tsv":
        delimiter = "\t"
    else:
        first = next(line[0] for line in find_lines(text) if line[0].strip())
        delimiter = max(_DELIMITERS, key=_QUOTED.sub("", first).count)
    ways = [(True, False), (True, True)]
    if kind == "tsv":
        ways = [(True, False), (False, False), (True, True), (False, True)]
    return [Dialect(delimiter, quotes, backslash, start) for quotes, backslash in ways]


def read_table_rows(
    text: str | EncodedText, dialect: Dialect
) -> Iterator[tuple[int, list[str] | csv.Error]]:
    """Yield each row's first line number and its fields, or what is wrong with it.

    An open quote swallows the lines after it; reading then goes on at the line after its first, so
    that one bad row costs no other.

    Raises:
        LongLine: At a line of more than `MAX_LINE` characters.
    """
    number, offset = 1 + (dialect.start > 0), dialect.start
    while True:
        walk = _Lines(text, offset, dialect)
        reader = csv.reader(
            walk,
            delimiter=dialect.delimiter,
            quoting=csv.QUOTE_MINIMAL if dialect.quotes else csv.QUOTE_NONE,
            escapechar="\\" if dialect.backslash else None,
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

    def __init__(self, text: str | EncodedText, offset: int, dialect: Dialect) -> None:
        self._found = find_lines(text, offset)
        self._keeps_null = dialect.backslash
        self.first_end: int | None = None

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        found = next(self._found)
        line = found[0]
        if len(line) > MAX_LINE:
            raise LongLine(f"a line of {len(line):,} characters, the limit is {MAX_LINE:,}")
        if self.first_end is None:
            self.first_end = found.end()
        # \N stands for NULL; the csv module would take the backslash away.
        return _NULL.sub(r"\\\\N", line) if self._keeps_null else line


@contextmanager
def allow_long_fields() -> Iterator[None]:
    """Let the csv module read fields up to our own limit for a `with` block."""
    before = csv.field_size_limit(MAX_CHARACTERS)
    try:
        yield
    finally:
        csv.field_size_limit(before)
