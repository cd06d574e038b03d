"""Offer each script that a page shows as a Jupyter notebook, made of the page and the script.

The text of the page becomes the notebook's text. Each definition of the script is a cell, and so is
each paragraph of `main`, at top level, so that a reader can stop there and look at values.
"""

from __future__ import annotations

import os
import re
import textwrap
from pathlib import Path
from typing import Any

import nbformat
from markdown_pieces import without_links_to_files
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

_SCRIPT = re.compile(r"^```\{literalinclude\} (\S+\.py)\n.*?^```$", re.MULTILINE | re.DOTALL)


def pages_of_scripts(docs: Path) -> dict[str, Path]:
    """Return the pages that show a script, by the script's name without `.py`."""
    pages = (page for page in sorted(docs.glob("*/*.md")))
    shown = ((_SCRIPT.search(page.read_text(encoding="utf-8")), page) for page in pages)
    return {Path(found[1]).stem: page for found, page in shown if found is not None}


def example_notebook(page: Path) -> nbformat.NotebookNode:
    """Return a page that shows a script as a notebook that has not been run."""
    before, script, after = _SCRIPT.split(page.read_text(encoding="utf-8"))
    code = code_cells((page.parent / script).read_text(encoding="utf-8"))
    cells = [
        new_markdown_cell(without_links_to_files(before).strip()),
        *map(new_code_cell, code),
        new_markdown_cell(without_links_to_files(after).strip()),
    ]
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number}"  # those of nbformat are random
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return new_notebook(cells=cells, metadata={"kernelspec": kernel})


def code_cells(script: str) -> list[str]:
    """Divide a script into cells; the options of its command line get their defaults."""
    top, *definitions = script.split("\n\n\n")
    cells = [re.sub(r'\A"""(?s:.*?)"""\n|^from __future__ .*\n', "", top, flags=re.MULTILINE)]
    for definition in definitions:
        head, _, body = definition.partition("\n")
        if head.startswith("def main("):
            paragraphs = textwrap.dedent(body.partition("\n")[2])  # without the docstring
            cells += re.split(r"\n\n(?=\S)", paragraphs.replace(".parse_args()", ".parse_args([])"))
        elif not head.startswith("if __name__"):
            cells.append(definition)
    return [cell.strip() for cell in cells]


def setup(app: Any) -> dict[str, object]:
    """Register with Sphinx: write the notebooks, and link to each below its script."""
    written: dict[str, str] = {}

    def write(app: Any) -> None:
        folder = Path(app.doctreedir) / "notebooks"
        folder.mkdir(parents=True, exist_ok=True)
        for name, page in pages_of_scripts(Path(app.srcdir)).items():
            target = folder / f"{name}.ipynb"
            nbformat.write(example_notebook(page), target)
            written[app.env.path2doc(str(page))] = os.path.relpath(target, page.parent)

    def link(app: Any, page: str, source: list[str]) -> None:
        del app
        if page in written:
            offer = f"\n\nDownload it as a {{download}}`Jupyter notebook <{written[page]}>`."
            source[0] = _SCRIPT.sub(lambda found: found[0] + offer, source[0])

    app.connect("builder-inited", write)
    app.connect("source-read", link)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
