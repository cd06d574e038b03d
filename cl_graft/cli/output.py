"""What the command line writes: results to stdout, everything else to stderr.

With ``--json`` stdout holds one JSON document and nothing else; with ``--quiet`` nothing but
results and errors is written.
"""

from __future__ import annotations

import io
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

from cl_graft.runtime.escaping import for_json, for_terminal

__all__ = ["Output", "apart", "given", "json_text", "plain", "show_whatever_comes", "table"]


@dataclass(frozen=True)
class Output:
    """Where a command writes.

    Attributes:
        quiet: Leave out progress and notes.
        as_json: Write results as JSON.
    """

    quiet: bool = False
    as_json: bool = False

    @property
    def notes(self) -> Console:
        """The console of progress and notes."""
        return Console(stderr=True, quiet=self.quiet, highlight=False)

    def result(self, content: object, *shown: object) -> None:
        """Write a result: `content` as JSON, or `shown` (tables and text) for people."""
        if self.as_json:
            sys.stdout.write(f"{json_text(content, indent=2)}\n")
            return
        console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
        for thing in shown:
            text = isinstance(thing, str)
            console.print(for_terminal(thing) if text else thing, markup=False, soft_wrap=text)

    def note(self, text: str) -> None:
        """Write a line to stderr."""
        self.notes.print(for_terminal(text), markup=False, soft_wrap=True)


def show_whatever_comes() -> None:
    """Write characters that the encoding of stdout or stderr lacks as escapes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


@contextmanager
def apart() -> Iterator[None]:
    """Send what libraries print to stdout to stderr instead, for a `with` block."""
    with redirect_stdout(sys.stderr):
        yield


def given(**options: object) -> dict[str, object]:
    """Return the options that were given, by name."""
    return {name: value for name, value in options.items() if value is not None}


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Group:
    """Make a table under its title: text to the left, numbers to the right."""
    made = Table(header_style="bold")
    for place, column in enumerate(columns):
        numeric = bool(rows) and all(_is_number(row[place]) for row in rows)
        made.add_column(
            Text(for_terminal(column)), justify="right" if numeric else "left", overflow="fold"
        )
    for row in rows:
        made.add_row(*(Text(for_terminal(str(cell))) for cell in row))
    return Group(Text(for_terminal(title), style="bold"), made)


def json_text(content: object, *, indent: int | None = None) -> str:
    """Write a value as JSON that stdout can show, whatever its encoding."""
    unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    return for_json(plain(content), indent=indent, ascii_only=not unicode)


def plain(value: object) -> Any:
    """Return a value as what JSON can hold: NaN and infinities become null."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Path):
        return str(value)
    return value


def _is_number(cell: object) -> bool:
    return str(cell).strip("–-+ %").replace(",", "").replace(".", "", 1).isdigit() or cell == "–"
