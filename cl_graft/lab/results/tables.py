"""Tables of results, written as CSV, for LaTeX, as Markdown and for a notebook, and their texts."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from cl_graft.runtime.escaping import for_latex, for_markdown, for_terminal

if TYPE_CHECKING:
    from cl_graft.kinds.rows import Row
    from cl_graft.lab.results.strategy_statistics import Spread

_SYMBOLS = str.maketrans({"±": "$\\pm$", "–": "--", "−": "$-$", "γ": "$\\gamma$"})
_LONGEST = 300
"""Characters of a row's text that are shown."""


@dataclass(frozen=True)
class Cell:
    """A cell of a table, and the number that it is sorted by; None comes last.

    `share`, in [0, 1], says how dark it is shaded; None leaves it as the page.
    """

    text: str
    value: float | None = None
    best: bool = False
    share: float | None = None


@dataclass(frozen=True)
class Table:
    """A table; the first cell of a row names it.

    Rows of a table whose first column is ``"strategy"`` are shown and hidden with that strategy, a
    table of one `strategy` as a whole.
    """

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    sortable: bool = True
    strategy: str = ""

    @property
    def text_columns(self) -> list[int]:
        """The places of the columns that hold words: no cell of them has a number."""
        columns = enumerate(zip(*self.rows, strict=True))
        return [number for number, cells in columns if all(cell.value is None for cell in cells)]

    @property
    def texts(self) -> list[list[str]]:
        """The texts of the cells, row by row."""
        return [[cell.text for cell in row] for row in self.rows]

    def csv(self) -> str:
        """Write the table as CSV."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerows([for_terminal(t) for t in row] for row in (self.head, *self.texts))
        return text.getvalue()

    def latex(self) -> str:
        """Write the table for LaTeX with booktabs, best values bold; names stay what they are."""
        rows = [
            [rf"\textbf{{{_latex(cell.text)}}}" if cell.best else _latex(cell.text) for cell in row]
            for row in self.rows
        ]
        lines = [
            f"% {for_latex(self.caption)}",
            r"\begin{tabular}{l" + "r" * (len(self.head) - 1) + "}",
            r"\toprule",
            " & ".join(map(_latex, self.head)) + r" \\",
            r"\midrule",
            *(" & ".join(row) + r" \\" for row in rows),
            r"\bottomrule",
            r"\end{tabular}",
        ]
        return "\n".join([*lines, ""])

    def markdown(self) -> list[str]:
        """Write the table as lines of Markdown, numbers to the right."""
        words = {0, *self.text_columns}
        rule = ["---" if number in words else "---:" for number in range(len(self.head))]
        lines = ([for_markdown(text) for text in row] for row in (self.head, *self.texts))
        head, *rows = (f"| {' | '.join(line)} |" for line in lines)
        return [head, f"| {' | '.join(rule)} |", *rows]

    def html(self) -> str:
        """Write the table for a notebook; all texts are escaped."""

        def line(tag: str, texts: Sequence[str]) -> str:
            cells = (f"<{tag}>{escape(for_terminal(text))}</{tag}>" for text in texts)
            return f"<tr>{''.join(cells)}</tr>"

        body = "".join(line("td", row) for row in self.texts)
        return (
            f"<table><caption>{escape(for_terminal(self.caption))}</caption>"
            f"<thead>{line('th', self.head)}</thead><tbody>{body}</tbody></table>"
        )


def make_matrix(
    cells: Sequence[Sequence[float | None]],
    names: Sequence[str],
    *,
    caption: str,
    corner: str,
    columns: Sequence[str] | None = None,
    strategy: str = "",
) -> Table:
    """Write a matrix of fractions in points, a row and a column a name, the largest darkest."""
    rows = tuple(
        (Cell(name), *(Cell(points(value), value, share=value and max(0, value)) for value in row))
        for name, row in zip(names, cells, strict=False)
    )
    return Table(caption, (corner, *(columns or names)), rows, sortable=False, strategy=strategy)


def _latex(text: str) -> str:
    return for_latex(text).translate(_SYMBOLS)


def make_row(*values: str | Cell) -> tuple[Cell, ...]:
    """Return a row of cells; texts become cells without a number."""
    return tuple(value if isinstance(value, Cell) else Cell(value) for value in values)


def make_points(value: float | None) -> Cell:
    """Return a cell with a fraction in points."""
    return Cell(points(value), value)


def make_count(value: int | None) -> Cell:
    """Return a cell with a whole number; a dash where there is none."""
    return Cell("–" if value is None else f"{value:,}", value)


def points(value: float | None) -> str:
    """Write a fraction in points; a dash where there is none."""
    return "–" if value is None else f"{100 * value:z.1f}"


def shorten(text: str) -> str:
    """Cut a row's text after 300 characters, and mark the cut."""
    return f"{text[:_LONGEST]} …" if len(text) > _LONGEST else text


def row_text(row: Row) -> str:
    """Write the text of a row, or both of a pair; a long one is cut."""
    return shorten(row.text if row.text_pair is None else f"{row.text} | {row.text_pair}")


def spread_text(spread: Spread, *, scale: float = 100, digits: int = 1) -> str:
    """Write a mean and its standard deviation, fractions in points; a dash where there is none."""
    if spread.mean is None:
        return "–"
    text = f"{scale * spread.mean:z,.{digits}f}"
    return text if spread.sd is None else f"{text} ± {scale * spread.sd:,.{digits}f}"


def model_text(model: Mapping[str, Any]) -> str:
    """Describe the base in a line, as results hold it."""
    return (
        f"model: {model['name']} ({model['family']}, {model['graftable']:,} graftable coordinates, "
        f"fingerprint {model['fingerprint'][:12]}…)"
    )


def pairs_text(values: Mapping[str, Any]) -> str:
    """Write names and values, such as versions, with commas between the pairs."""
    return ", ".join(f"{name} {value}" for name, value in values.items())


def schedule_text(schedule: Mapping[str, Any]) -> str:
    """Describe how a task was trained, as results hold it."""
    return f"{schedule['steps']} steps of {schedule['batch_size']} rows at lr {schedule['lr']:g}"
