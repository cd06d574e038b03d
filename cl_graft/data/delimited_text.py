"""The rows of comma- and tab-separated tables: one that cannot be read costs no other."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from cl_graft.data.text_files import MAX_CHARACTERS, MAX_LINE

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
        start: Number of lines before the table.
    """

    delimiter: str
    quotes: bool = True
    backslash: bool = False
    start: int = 0


def choose_dialects(lines: Sequence[str], kind: str) -> list[Dialect]:
    """Return the ways in which a table may be written, the likeliest first.

    Its fields are parted by what a first line ``sep=;`` says, as Excel reads it, or by what the
    header holds most of outside of quotes; those of a `.tsv` by tabs.
    """
    said = _SEPARATOR_LINE.fullmatch(lines[0])
    if said:
        delimiter = said[1]
    elif kind == "tsv":
        delimiter = "\t"
    else:
        first = next(line for line in lines if line.strip())
        delimiter = max(_DELIMITERS, key=_QUOTED.sub("", first).count)
    ways = [(True, False), (True, True)]
    if kind == "tsv":
        ways = [(True, False), (False, False), (True, True), (False, True)]
    start = 1 if said else 0
    return [Dialect(delimiter, quotes, backslash, start) for quotes, backslash in ways]


def read_table_rows(
    lines: Sequence[str], dialect: Dialect
) -> Iterator[tuple[int, list[str] | csv.Error]]:
    """Yield each row's first line number and its fields, or what is wrong with it.

    An open quote swallows the lines after it; reading then goes on at the line after its first, so
    that one bad row costs no other.
    """
    start = dialect.start
    while start < len(lines):
        reader = csv.reader(
            _prepare(lines, start, dialect),
            delimiter=dialect.delimiter,
            quoting=csv.QUOTE_MINIMAL if dialect.quotes else csv.QUOTE_NONE,
            escapechar="\\" if dialect.backslash else None,
            strict=True,
        )
        begun = start
        while True:
            number = start + 1
            try:
                fields: list[str] | csv.Error | None = next(reader, None)
            except csv.Error as error:
                fields = error
            if fields is None:
                return
            yield number, fields
            end = begun + reader.line_num
            start = end if isinstance(fields, list) else start + 1
            if start < end:
                break


class LongLine(ValueError):
    """A line is longer than any table's."""


def _prepare(lines: Sequence[str], start: int, dialect: Dialect) -> Iterator[str]:
    for number in range(start, len(lines)):
        line = lines[number]
        if len(line) > MAX_LINE:
            raise LongLine(f"a line of {len(line):,} characters, the limit is {MAX_LINE:,}")
        # \N stands for NULL; the csv module would take the backslash away.
        yield _NULL.sub(r"\\\\N", line) if dialect.backslash else line


@contextmanager
def allow_long_fields() -> Iterator[None]:
    """Let the csv module read fields up to our own limit for a `with` block."""
    before = csv.field_size_limit(MAX_CHARACTERS)
    try:
        yield
    finally:
        csv.field_size_limit(before)
