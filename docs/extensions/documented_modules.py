"""Which modules the reference documents, on which page, and where each public name is used.

A line `<!-- module: NAME -->` of a page in `docs/reference/api` asks for a module's documentation.
In full stand the names that an example of some page uses, the types that these take and return,
and errors. The others, which serve the package itself, stand in a table with a sentence each.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path

from markdown_pieces import table
from sphinx.pycode import ModuleAnalyzer

DOCS = Path(__file__).parents[1]
_MODULE = re.compile(r"^<!-- module: (cl_graft[\w.]*) -->$", re.MULTILINE)
_PAGES = re.compile(r"^<!-- pages in ([\w/]+) -->$", re.MULTILINE)
_PYTHON = re.compile(
    r"^ *```(?:python|\{code-block\} python)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL
)

MODULES: Mapping[str, tuple[str, ...]] = {
    page.relative_to(DOCS).with_suffix("").as_posix(): tuple(
        _MODULE.findall(page.read_text(encoding="utf-8"))
    )
    for page in sorted(DOCS.glob("reference/api/*/*.md"))
}
"""The modules of each page of the reference."""


def document_modules(text: str) -> str:
    """Put the documentation of modules in the place of the lines that ask for it."""
    return _MODULE.sub(lambda found: _document(found[1]), text)


@cache
def names_of_module(module: str) -> tuple[str, ...]:
    """Return the public names of a module in its order: what it declares, or else defines.

    Those are its classes, functions and constants without an underscore in front.
    """
    loaded = import_module(module)
    if declared := getattr(loaded, "__all__", None):
        return tuple(declared)
    names: list[str] = []
    for node in ast.parse(inspect.getsource(loaded)).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for part in (part for target in targets for part in ast.walk(target)):
                names += [part.id] if isinstance(part, ast.Name) else []
    return tuple(name for name in dict.fromkeys(names) if name[0] != "_" and name != "logger")


def _document(module: str) -> str:
    names = names_of_module(module)
    full = _in_full([module])
    members = f"   :members: {', '.join(full)}\n" if full else ""
    parts = [
        f"## {module}",
        f"```{{eval-rst}}\n.. automodule:: {module}\n{members}```",
    ]
    if len(full) < len(names):
        told = ((f"`{name}`", _tell(module, name)) for name in names if name not in full)
        parts.append(table(("also in this module", "what it is"), told))
    return "\n\n".join(parts)


def _tell(module: str, name: str) -> str:
    """The first sentence about a name: of its docstring, or of the text below a constant."""
    thing = getattr(import_module(module), name)
    if inspect.isclass(thing) or inspect.isroutine(thing):
        return first_sentence(thing.__doc__)
    value = f"`{thing!r}`" if len(repr(thing)) < 60 else f"a {type(thing).__name__}"
    return first_sentence("\n".join(_texts_of_constants().get(name, []))) or value


def first_sentence(docstring: str | None) -> str:
    """Return the first paragraph of a docstring in one line, without its full stop."""
    text = " ".join((docstring or "").split("\n\n")[0].split())
    return text.removesuffix(".")


@cache
def _texts_of_constants() -> dict[str, list[str]]:
    """The texts below the constants of all modules that are loaded."""
    modules = sorted(name for name in sys.modules if name.startswith("cl_graft."))
    return {
        name: lines
        for module in modules
        for (owner, name), lines in ModuleAnalyzer.for_module(module).find_attr_docs().items()
        if not owner
    }


@cache
def names_in_full() -> frozenset[str]:
    """Return the names of the reference that are documented in full."""
    things = {
        name: getattr(import_module(module), name)
        for modules in MODULES.values()
        for module in modules
        for name in names_of_module(module)
    }
    used = pages_that_use()
    full = {
        name
        for name, thing in things.items()
        if name in used
        or "Example" in (thing.__doc__ or "")
        or (inspect.isclass(thing) and issubclass(thing, BaseException))
    }
    fresh = full
    while fresh:
        fresh = {other for name in fresh for other in _named_by(things[name])} & set(things) - full
        full = full | fresh
    return frozenset(full)


def _named_by(thing: object) -> set[str]:
    """The names in the annotations of a function, or of the fields and the methods of a class."""
    things = [thing]
    if inspect.isclass(thing):
        things += [own for name, own in vars(thing).items() if not name.startswith("_")]
    annotations = [
        str(annotation)
        for own in things
        for annotation in getattr(
            own.fget if isinstance(own, property) else own, "__annotations__", {}
        ).values()
    ]
    return set(re.findall(r"\w+", " ".join(annotations)))


def list_pages(text: str) -> str:
    """Put a table of pages in the place of a line `<!-- pages in FOLDER -->`.

    It says which names each page documents in full.
    """
    return _PAGES.sub(lambda found: _table_of_pages(f"reference/{found[1]}"), text)


def _table_of_pages(folder: str) -> str:
    rows = (
        (f"[{_title(page)}](/{page}.md)", ", ".join(f"`{name}`" for name in _in_full(modules)))
        for page, modules in MODULES.items()
        if page.startswith(f"{folder}/") and modules
    )
    return table(("page", "names"), rows)


def _in_full(modules: Iterable[str]) -> list[str]:
    names = (name for module in modules for name in names_of_module(module))
    return [name for name in names if name in names_in_full()]


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
