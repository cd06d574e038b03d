"""Output of the command line: results to stdout, everything else to stderr.

With ``--json`` stdout holds one JSON document and nothing else; with ``--quiet`` nothing but
results and errors is written.
"""

from __future__ import annotations

import io
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from cl_graft.runtime.escaping import for_terminal

_MOST_FRAMED = 100
"""Rows of a table that has a frame."""

_WIDEST = 40
"""Columns that a cell without a frame is filled up to."""


@dataclass(frozen=True)
class Output:
    """Output of one command; if quiet, without progress and notes."""

    quiet: bool = False
    as_json: bool = False

    @property
    def notes(self) -> Console:
        """The console of progress and notes."""
        return Console(stderr=True, quiet=self.quiet, highlight=False)

    def result(self, content: object, *shown: object) -> None:
        """Write a result: `content` as JSON, or `shown` (tables and text) for people."""
        if self.as_json:
            sys.stdout.write(f"{to_json_text(content, indent=2)}\n")
            return
        console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
        for thing in shown:
            text = isinstance(thing, str)
            shown_as = for_terminal(thing) if text else thing
            console.print(shown_as, markup=False, soft_wrap=text, crop=False)

    def note(self, text: str) -> None:
        """Write a line to stderr."""
        self.notes.print(for_terminal(text), markup=False, soft_wrap=True)


def escape_unencodable() -> None:
    """Write characters that the encoding of stdout or stderr lacks as escapes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


@contextmanager
def redirect_prints() -> Iterator[None]:
    """Send to stderr what libraries print to stdout, for a `with` block."""
    with redirect_stdout(sys.stderr):
        yield


def make_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], *, cut: str = ""
) -> Group:
    """Make a table under its title: text to the left, numbers to the right.

    Cells of the column `cut` end with their line; all others are folded where they are too long. A
    table of more than 100 rows has no frame and folds no cell, as laying that out takes seconds.
    """
    right = [bool(rows) and all(map(_is_number, column)) for column in zip(*rows, strict=True)]
    cells = [[for_terminal(str(value)) for value in row] for row in (columns, *rows)]
    heading = Text(for_terminal(title), style="bold")
    if len(rows) > _MOST_FRAMED:
        if cut in columns:
            at = columns.index(cut)
            cells = [[*row[:at], row[at][:_WIDEST], *row[at + 1 :]] for row in cells]
        widths = [min(_WIDEST, max(map(len, column))) for column in zip(*cells, strict=True)]
        lines = (
            "  ".join(
                cell.rjust(width) if numeric else cell.ljust(width)
                for cell, width, numeric in zip(row, widths, right, strict=True)
            ).rstrip()
            for row in cells
        )
        return Group(heading, Text("\n".join(lines), no_wrap=True, overflow="ignore"))
    made = Table(header_style="bold")
    for number, column in enumerate(cells[0]):
        numeric = bool(rows) and right[number]
        made.add_column(
            Text(column),
            justify="right" if numeric else "left",
            overflow="fold",
            no_wrap=cut in columns and column != cut,
        )
    for row in cells[1:]:
        pairs = zip(row, columns, strict=True)
        made.add_row(
            *(
                Text(cell, no_wrap=True, overflow="ellipsis")
                if column == cut
                else Text(cell, no_wrap=False)
                for cell, column in pairs
            )
        )
    return Group(heading, made)


def to_json_text(content: object, *, indent: int | None = None) -> str:
    """Write a value as JSON that stdout can show, whatever its encoding."""
    unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    return json.dumps(to_plain(content), indent=indent, ensure_ascii=not unicode, allow_nan=False)


def to_plain(value: object) -> Any:
    """Return a value as what JSON can hold: NaN and infinities become null."""
    if is_dataclass(value) and not isinstance(value, type):
        return to_plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Path):
        return str(value)
    return value


def format_score(value: object) -> str:
    """Return a score with three digits, or a dash where there is none."""
    return f"{value:.3f}" if isinstance(value, int | float) else "–"


def _is_number(value: object) -> bool:
    return str(value).strip("–-+ %").replace(",", "").replace(".", "", 1).isdigit() or value == "–"
