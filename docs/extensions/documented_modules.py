"""Which modules the reference documents, on which page, and where each public name is used.

A line `<!-- module: NAME -->` of a page in `docs/reference/api` asks for a module's documentation.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path

from markdown_pieces import table

__all__ = ["MODULES", "document_modules", "list_pages", "pages_that_use", "public_names"]

DOCS = Path(__file__).parents[1]
_MODULE = re.compile(r"^<!-- module: (cl_graft[\w.]*) -->$", re.MULTILINE)
_PAGES = re.compile(r"^<!-- pages in ([\w/]+) -->$", re.MULTILINE)
_PYTHON = re.compile(r"^ *```python\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)

MODULES: Mapping[str, tuple[str, ...]] = {
    page.relative_to(DOCS).with_suffix("").as_posix(): tuple(
        _MODULE.findall(page.read_text(encoding="utf-8"))
    )
    for page in sorted(DOCS.glob("reference/api/*/*.md"))
}
"""The modules of each page of the reference."""


def document_modules(text: str) -> str:
    """Put the documentation of modules in the place of the lines that ask for it."""
    return _MODULE.sub(
        lambda found: (
            f"## {found[1]}\n\n```{{eval-rst}}\n.. automodule:: {found[1]}\n   :members:\n```"
        ),
        text,
    )


def list_pages(text: str) -> str:
    """Put a table of pages and their names in the place of a line `<!-- pages in FOLDER -->`."""
    return _PAGES.sub(lambda found: _table_of_pages(f"reference/{found[1]}"), text)


def _table_of_pages(folder: str) -> str:
    rows = (
        (f"[{_title(page)}](/{page}.md)", ", ".join(f"`{name}`" for name in _public(modules)))
        for page, modules in MODULES.items()
        if page.startswith(f"{folder}/") and modules
    )
    return table(("page", "names"), rows)


def _public(modules: Iterable[str]) -> list[str]:
    return [name for module in modules for name in import_module(module).__all__]


def public_names() -> str:
    """Return the names of `import cl_graft` with the page of each."""
    import cl_graft

    homes: dict[str, list[str]] = {}
    for name in cl_graft.__all__:
        homes.setdefault(_page(getattr(cl_graft, name).__module__), []).append(name)
    return table(
        ("names", "page"),
        (
            (", ".join(f"`{name}`" for name in sorted(names)), f"[{_title(page)}](/{page}.md)")
            for page, names in sorted(homes.items())
        ),
    )


def pages_that_use() -> dict[str, list[str]]:
    """Return the pages with examples of each name of the package: those of guides first.

    Examples are the Python blocks of pages and the scripts that pages show.
    """
    used: dict[str, list[str]] = {}
    order = ("guides", "getting_started", "examples", "methods", "reference")
    for folder in order:
        for page in sorted(DOCS.glob(f"{folder}/*.md")):
            text = page.read_text(encoding="utf-8")
            code = _PYTHON.findall(text)
            for script in re.findall(r"\{literalinclude\} (\S+\.py)", text):
                code.append((page.parent / script).read_text(encoding="utf-8"))
            for name in sorted({name for block in code for name in _names(block)}):
                used.setdefault(name, []).append(f"{folder}/{page.stem}")
    return used


def _names(code: str) -> Iterator[str]:
    """The names that a block imports from the package, or takes from it as `cg.NAME`."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cl_graft"):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("cg", "cl_graft"):
            yield node.attr


def _page(module: str) -> str:
    return next(page for page, modules in MODULES.items() if module in modules)


def _title(page: str) -> str:
    return (DOCS / f"{page}.md").read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
