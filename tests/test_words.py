"""Identifiers use the field's words: those that this package once had of its own stay away.

Functions are verbs: no bare participle, such as `formed`, and no `..._of`. Run as a script, this
file prints every identifier that holds a word with a better one, with its reason.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("cl_graft", "benchmarks", "tests")

# Each word with the one to use for it.
INSTEAD = {
    **dict.fromkeys(("problem", "problems"), "task"),
    **dict.fromkeys(("host", "hosts", "carrier"), "strategy, model"),
    **dict.fromkeys(("claimed", "lost", "refill", "refilled", "told"), "owned, free, known"),
    **dict.fromkeys(("among", "inside", "posed", "posing"), "localizer inputs, ranking, budget"),
    **dict.fromkeys(("warm", "warmed", "warmup"), "head fit"),
    **dict.fromkeys(("twin", "twins"), "fine-tuned"),
    **dict.fromkeys(("standing", "shelf", "seal", "sealed", "seals"), "checkpoint, cache, hash"),
    **dict.fromkeys(("cell", "cells", "forms", "formed", "material"), "run, comparison"),
    **dict.fromkeys(("finding", "findings"), "result"),
    **dict.fromkeys(("look", "looks"), "evaluate"),
    **dict.fromkeys(("canary", "canaries"), "recorded batch"),
    **dict.fromkeys(("fact", "facts"), "metadata"),
    **dict.fromkeys(("room", "rooms", "ledger", "hollow"), "memory estimate, disk space"),
    **dict.fromkeys(("ink", "squares"), "figure style, heat map"),
}

# What may stay: a reason, and the identifiers that it holds for.
EXCEPTIONS: dict[str, tuple[str, ...]] = {
    "a cell of a table, a matrix or a heat map": (
        *("Cell", "_CELL", "_Cell", "_cell", "_cells", "_draw_cells", "_own_cell", "cell", "cells"),
        "table_cells",
    ),
    "one sample of the data in an experiment of the papers, and a key of its stored files": (
        *("_any_rank_of_cells", "_read_cell", "on_cell", "paper_cells"),
    ),
    "a machine on a network": ("_host", "host", "other_hosts"),
    "what a check of files or of an installation found": (*("describe_findings", "findings"),),
    "a key of stored files": ("facts",),
    "a key of stored files and of older JSON": ("claimed", "lost"),
    "a name of transformers'": ("problem_type",),
    "free processors of a cluster, or free tokens of a row": ("room",),
    "ordinary: words or coordinates within something": ("_inside", "inside", "f1_among_others"),
    "ordinary: to look at something once": (
        *("Look", "_looks_like_path", "look", "look_at_end", "look_through", "looks"),
    ),
    "ordinary: what somebody is told": ("Told", "_told", "_when_told", "told"),
    "ordinary: an array that is formed": ("formed",),
    "a benchmark's calls before it measures": ("warm_up",),
    "steps in which a learning rate rises": ("WARM_UP",),
    "a process that has imported the package already": ("run_warm", "warm_processes"),
}


# Variables that name no thing, and the fields of JSON that are called so.
NO_NOUNS = {"found", "kept", "one", "own", "place"}
FIELDS_OF_JSON = {
    "cl_graft/lab/experiments/installation.py: found",
    "cl_graft/lab/experiments/plan.py: kept",
}

# Functions that are no verbs.
NO_VERBS: dict[str, tuple[str, ...]] = {
    "regions of a bank, which read as its set algebra does": ("owned",),
    "a row of a table": ("_of",),
}
_PARTICIPLE = re.compile(r"_*(?:[a-z]+[^e]ed|made|told|held|found|kept|drawn|known|shown|given)")


def split(identifier: str) -> list[str]:
    """Return the words of a snake_case or CamelCase identifier, in lower case."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", identifier)]


def identifiers(path: Path) -> Iterator[str]:
    """Yield the names of a module, its functions, classes, parameters, attributes and variables."""
    yield path.stem
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if not node.name.startswith("test_"):  # a sentence, whose words are ordinary
                yield node.name
            if isinstance(node, ast.ClassDef):
                for part in node.body:
                    if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                        yield part.target.id
    yield from variables(path)


def variables(path: Path) -> Iterator[str]:
    """Yield the parameters, attributes and variables of a module."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def find() -> dict[str, set[str]]:
    """Return every identifier with a word of `INSTEAD`, and the files where it stands."""
    found: dict[str, set[str]] = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for identifier in identifiers(path):
                if INSTEAD.keys() & split(identifier):
                    found.setdefault(identifier, set()).add(str(path.relative_to(ROOT)))
    return found


def functions_that_are_no_verbs(path: Path) -> Iterator[str]:
    """Yield a module's functions that are called by a bare participle or end in `_of`.

    Properties, context managers, what is registered by its name, and what tells yes or no is left
    out.
    """
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef):
            decorators = " ".join(map(ast.unparse, node.decorator_list))
            returned = ast.unparse(node.returns) if node.returns else ""
            if re.search(r"property|contextmanager|register_", decorators) or returned == "bool":
                continue
            if _PARTICIPLE.fullmatch(node.name) or node.name.endswith("_of"):
                yield node.name


def reasons() -> dict[str, str]:
    """Return the reason of every identifier that may stay."""
    return {name: reason for reason, names in EXCEPTIONS.items() for name in names}


def test_no_identifier_holds_a_word_that_has_a_better_one():
    allowed = reasons()
    new = {
        name: (sorted(files), [INSTEAD[word] for word in split(name) if word in INSTEAD])
        for name, files in find().items()
        if name not in allowed
    }
    assert new == {}


def test_functions_are_verbs():
    allowed = {name for names in NO_VERBS.values() for name in names}
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for folder in ("cl_graft", "benchmarks")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for name in functions_that_are_no_verbs(path)
        if name not in allowed
    }
    assert found == set()


def test_variables_are_nouns_that_say_what_they_hold():
    vague = {
        f"{path.relative_to(ROOT)}: {identifier}"
        for path in sorted((ROOT / "cl_graft").rglob("*.py"))
        for identifier in variables(path)
        if identifier.strip("_") in NO_NOUNS
    }
    assert vague == FIELDS_OF_JSON


def test_names_are_split_into_words():
    assert split("find_standing") == ["find", "standing"]
    assert split("_RayHOSTLedger2") == ["ray", "host", "ledger"]


if __name__ == "__main__":
    allowed, left = reasons(), find()
    for name, files in sorted(left.items()):
        sys.stdout.write(f"{name}: {allowed.get(name, 'NO REASON')} ({', '.join(sorted(files))})\n")
    sys.stdout.write(f"no longer needed: {', '.join(sorted(allowed.keys() - left)) or 'none'}\n")
