"""Pieces of Markdown."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["table", "toctree"]


def table(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Write a Markdown table."""
    head = list(columns)
    lines = [head, ["---"] * len(head), *([_cell(c) for c in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def toctree(pages: Iterable[str]) -> str:
    """List pages that are not shown but belong to one."""
    return "\n".join(["```{toctree}", ":hidden:", "", *pages, "```"])


def _cell(value: object) -> str:
    return str(value).replace("|", r"\|").replace("\n", " ")
