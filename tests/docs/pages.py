"""The pages of the documentation and what stands in their fenced blocks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

_FENCE = re.compile(r"^ *```([^\n`]*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, and the line of the page that it starts on."""

    language: str
    text: str
    line: int


def pages() -> list[Path]:
    """All pages, the README too where there is one."""
    found = [path for path in sorted(DOCS.rglob("*.md")) if "_build" not in path.parts]
    return [path for path in (ROOT / "README.md", *found) if path.is_file()]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, language: str) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(found[1], found[2], text.count("\n", 0, found.start(2)) + 1)
        for found in _FENCE.finditer(text)
        if found[1] == language
    ]


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def typed_commands(page: Path) -> Iterator[str]:
    """Every line that a page tells the reader to type: after a `$ ` in a console block."""
    for language in ("console", "bash", "sh", "shell"):
        for block in blocks(page, language):
            whole = block.text.replace("\\\n", " ")
            for line in whole.splitlines():
                if language != "console":
                    yield line.strip()
                elif line.strip().startswith("$ "):
                    yield line.strip().removeprefix("$ ")
