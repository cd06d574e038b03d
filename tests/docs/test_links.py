"""Links of the README, of pages and of notebooks lead to files and headings that are there."""

import json
import re
from pathlib import Path

from docs.pages import DOCS, name_of, pages, prose
from docs.test_reference import load_extension

extension = load_extension("from_the_package")
NOTEBOOKS = sorted((DOCS / "examples").glob("*.ipynb"))
_LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")
_CODE = re.compile(r"`[^`\n]*`")


def text_of(page: Path) -> str:
    """The text of a page or notebook without its code."""
    if page.suffix == ".md":
        return prose(page)
    cells = json.loads(page.read_text(encoding="utf-8"))["cells"]
    return "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")


def slugs(text: str) -> set[str]:
    """The anchors of the headings of a page, as MyST and GitHub make them."""
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    words = (re.sub(r"[^\w\- ]", "", title.lower()) for title in titles)
    return {word.strip().replace(" ", "-") for word in words}


def has_heading(page: Path, anchor: str) -> bool:
    text = text_of(page)
    return anchor in slugs(text) or (
        bool(extension.MARKER.search(text)) and anchor in slugs(extension.fill(text))
    )


def broken(page: Path) -> list[str]:
    """The links of a page that lead to no file, or to no heading of the file."""
    found = []
    for target, anchor in _LINK.findall(_CODE.sub("``", text_of(page))):
        file = (page.parent / target) if target else page
        if not file.exists() or (anchor and not has_heading(file, anchor)):
            found.append(f"{target}#{anchor}" if anchor else target)
    return found


def test_decisions_have_the_number_of_their_page():
    other = re.compile(r"decision\s+(\d+)\]\([^)]*decisions/0*+(?!\1-)")
    assert {name_of(page) for page in pages() if other.search(text_of(page))} == set()


def test_links_lead_to_files_and_headings_that_are_there():
    assert NOTEBOOKS
    found = {name_of(page): broken(page) for page in [*pages(), *NOTEBOOKS]}
    assert {name: links for name, links in found.items() if links} == {}
