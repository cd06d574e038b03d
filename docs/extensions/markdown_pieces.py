"""Markdown written or rewritten for the docs: tables, hidden lists of pages, and links."""

from __future__ import annotations

import re
from collections.abc import Iterable


def table(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Write a Markdown table."""
    head = list(columns)
    lines = [head, ["---"] * len(head), *([_cell(c) for c in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def toctree(pages: Iterable[str]) -> str:
    """List pages that are not shown but belong to one."""
    return "\n".join(["```{toctree}", ":hidden:", "", *pages, "```"])


def link_sources(text: str) -> str:
    """Make links of addresses in a text, with the number of a paper on arXiv as the words."""
    text = re.sub(r"https://arxiv\.org/abs/([\d.]+\d)", r"[arXiv:\1](\g<0>)", text)
    return re.sub(r"(?<!\()https://[^\s,;)]+", r"<\g<0>>", text)


def without_links_to_files(text: str) -> str:
    """Keep the words of links and the captions of pictures, where they lead to files."""
    return re.sub(r"!?\[([^\]]*)\]\((?!https?:|#)[^)]*\)", r"\1", text)


def _cell(value: object) -> str:
    return str(value).replace("|", r"\|").replace("\n", " ")
