"""Tables of results, written as CSV, for LaTeX, as Markdown, and for a notebook."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from cl_graft.lab.results.formatting import points
from cl_graft.runtime.escaping import for_csv, for_latex, for_markdown, for_terminal

_SYMBOLS = str.maketrans({"±": "$\\pm$", "–": "--", "−": "$-$", "γ": "$\\gamma$"})


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes:
        text: Text of the cell.
        value: Number that it is sorted by; None comes last.
        best: Whether it is the best of its column.
        share: How dark the cell is shaded, in [0, 1]; None leaves it as the page.
    """

    text: str
    value: float | None = None
    best: bool = False
    share: float | None = None


@dataclass(frozen=True)
class Table:
    """A table; the first cell of a row names it.

    Rows of a table whose first column is ``"strategy"`` are shown and hidden with that strategy.

    Attributes:
        caption: Sentence on what the table shows.
        head: Names of the columns.
        rows: Cells, row by row.
        sortable: Whether its rows may change places.
        strategy: The strategy that it is of alone, if it is of one.
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
        return [place for place, cells in columns if all(cell.value is None for cell in cells)]

    @property
    def texts(self) -> list[list[str]]:
        """The texts of the cells, row by row."""
        return [[cell.text for cell in row] for row in self.rows]

    def csv(self) -> str:
        """Write the table as CSV."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerows(
            [for_csv(for_terminal(t)) for t in row] for row in (self.head, *self.texts)
        )
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
        rule = ["---" if place in words else "---:" for place in range(len(self.head))]
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
    """Write a matrix of fractions in points, a row and a column a name, the largest darkest.

    Args:
        cells: The matrix.
        names: Names of the rows.
        caption: Caption of the table.
        corner: Head of the first column.
        columns: Names of the columns; None means those of the rows.
        strategy: The strategy that it is of.
    """
    rows = tuple(
        (Cell(name), *(Cell(points(value), value, share=value and max(0, value)) for value in row))
        for name, row in zip(names, cells, strict=False)
    )
    return Table(caption, (corner, *(columns or names)), rows, sortable=False, strategy=strategy)


def _latex(text: str) -> str:
    return for_latex(text).translate(_SYMBOLS)
