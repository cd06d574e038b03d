"""What the command line writes: results to stdout, everything else to stderr.

With ``--json`` stdout holds one JSON document and nothing else; with ``--quiet`` nothing but
results and errors is written.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any
from unicodedata import category

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

__all__ = ["Output", "apart", "given", "plain", "table", "visible"]

_TURNS_TEXT = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that turn the direction of the text after them."""


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
            json.dump(plain(content), sys.stdout, indent=2, ensure_ascii=False, allow_nan=False)
            sys.stdout.write("\n")
            return
        console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
        for thing in shown:
            text = isinstance(thing, str)
            console.print(visible(thing) if text else thing, markup=False, soft_wrap=text)

    def note(self, text: str) -> None:
        """Write a line to stderr."""
        self.notes.print(visible(text), markup=False, soft_wrap=True)


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
        made.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        made.add_row(*(Text(visible(str(cell))) for cell in row))
    return Group(Text(visible(title), style="bold"), made)


def visible(text: str) -> str:
    """Write as escapes what would steer a terminal: names come from files of others, too."""
    return "".join(
        character.encode("unicode_escape").decode()
        if character in _TURNS_TEXT
        or (category(character) in ("Cc", "Cs") and character not in "\n\t")
        else character
        for character in text
    )


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
