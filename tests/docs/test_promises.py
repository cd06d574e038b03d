"""Every sentence of these pages that promises something names the test that holds it to that.

The name stands in the page's source, in a comment behind the sentence:
`<!-- test: tests/storage/test_locks.py::test_... -->`, several with commas between them. It begins
on the sentence's last line: at the start of a line it would end the paragraph.
"""

from __future__ import annotations

import re

import pytest
from docs.pages import DOCS, ROOT, name_of

PAGES = [
    *(DOCS / "reference" / f"{name}.md" for name in ("trust", "file_format")),
    *(
        DOCS / "guides" / f"{name}.md"
        for name in ("data", "malformed_data", "built_in_tasks", "prompts")
    ),
]

_PROMISE = re.compile(
    r"(?<![\w-])(never|always|refuse[sd]?|exact(ly)?|at most|nothing|no files?|only)(?![\w-])",
    re.IGNORECASE,
)
_MARKER = re.compile(r"<!-- test: (.*?) -->", re.DOTALL)
_FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*|]|\d+\.) ?)")
_END = re.compile(r"(?:(?<=[.!?])|(?<=-->))\s+(?=[A-Z`*\[(])")


def sentences(text: str) -> list[str]:
    """The sentences of a page with the comments behind them; a table's row counts as one."""
    found = []
    for block in _BLOCK.split(_FENCE.sub("", text)):
        plain = " ".join(block.split())
        if not plain.startswith("#"):
            found += [plain] if plain.startswith("|") else _END.split(plain)
    return found


def unproved(text: str) -> list[str]:
    """The sentences of a page that promise something and name no test."""
    said = ((one, re.sub(r"`[^`]*`", "", _MARKER.sub("", one))) for one in sentences(text))
    return [one for one, plain in said if _PROMISE.search(plain) and not _MARKER.search(one)]


def missing(text: str) -> list[str]:
    """The tests that a page names and that are not there."""
    named = {name.strip() for names in _MARKER.findall(text) for name in names.split(",")}
    return sorted(name for name in named if not _exists(name))


def _exists(name: str) -> bool:
    file, _, test = name.partition("::")
    path = ROOT / file
    return path.is_file() and f"\ndef {test}(" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_promise_of_a_page_names_a_test_that_exists(page) -> None:
    text = page.read_text(encoding="utf-8")
    assert unproved(text) == []
    assert missing(text) == []
    assert re.findall(r"^ *<!-- test:", text, re.MULTILINE) == []  # it would end a paragraph
