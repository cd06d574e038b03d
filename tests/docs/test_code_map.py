"""Pages about the code name files and functions that are there."""

import ast
import re

import pytest
from docs.pages import ROOT

PROJECT = ROOT / "docs" / "project"
PAGES = ("where_is_what", "from_csv_to_bank", "from_config_to_report")

_PATH = re.compile(r"`(cl_graft/[\w/]+\.py)`")


def named(line: str) -> tuple[list[str], list[str]]:
    """The paths that a line names, and the names that it says stand in them."""
    paths = _PATH.findall(line)
    if line.startswith("|"):
        return paths, re.findall(r"`(\w+)`", line.rsplit("|", 2)[1])
    return paths, re.findall(r"^\d+\. `[^`]+`, `(\w+)`:", line)


def defined(path: str) -> set[str]:
    """The functions, classes, methods and constants that a module defines."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    names = {
        node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def lines(page: str) -> list[str]:
    text = (PROJECT / f"{page}.md").read_text(encoding="utf-8")
    return [line for line in text.splitlines() if _PATH.search(line)]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_about_the_code_names_what_is_there(page):
    assert len(lines(page)) >= 18
    for line in lines(page):
        paths, names = named(line)
        assert len(paths) == len(names), line
        for path, name in zip(paths, names, strict=True):
            assert (ROOT / path).is_file(), line
            assert name in defined(path), line


def test_where_is_what_answers_twenty_questions():
    assert len(lines("where_is_what")) == 20
