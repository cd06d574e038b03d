"""Numbers and tables of results as text, alike in files, in the terminal and in notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from cl_graft.runtime.escaping import for_terminal

if TYPE_CHECKING:
    from cl_graft.results.strategy_statistics import Spread

__all__ = ["html_table", "points", "spread_text"]


def points(value: float | None) -> str:
    """Write a fraction in points; a dash where there is none."""
    return "–" if value is None else f"{100 * value:z.1f}"


def spread_text(spread: Spread, *, scale: float = 100, digits: int = 1) -> str:
    """Write a mean and its standard deviation, fractions in points; a dash where there is none."""
    if spread.mean is None:
        return "–"
    text = f"{scale * spread.mean:z,.{digits}f}"
    return text if spread.sd is None else f"{text} ± {scale * spread.sd:,.{digits}f}"


def html_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a table for a notebook; all texts are escaped."""

    def line(tag: str, texts: Sequence[str]) -> str:
        cells = (f"<{tag}>{escape(for_terminal(text))}</{tag}>" for text in texts)
        return f"<tr>{''.join(cells)}</tr>"

    body = "".join(line("td", row) for row in rows)
    return (
        f"<table><caption>{escape(for_terminal(title))}</caption>"
        f"<thead>{line('th', columns)}</thead><tbody>{body}</tbody></table>"
    )
