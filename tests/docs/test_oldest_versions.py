"""The oldest supported versions: what `make oldest` installs is what `pyproject.toml` allows."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def requirements(*extras: str) -> Iterator[Requirement]:
    """Yield what the package asks for with some extras, and with the extras that these name."""
    lines = list(PROJECT["dependencies"])
    waiting = list(extras)
    while waiting:
        for line in PROJECT["optional-dependencies"][waiting.pop()]:
            requirement = Requirement(line)
            if requirement.name == PROJECT["name"]:
                waiting += requirement.extras
            else:
                lines.append(line)
    yield from map(Requirement, lines)


def test_each_lower_bound_of_what_is_tested_is_pinned():
    pins = {
        (found := Requirement(line)).name: Version(str(found.specifier).removeprefix("=="))
        for line in (ROOT / ".ci" / "oldest.txt").read_text(encoding="utf-8").splitlines()
        if not line.startswith("#")
    }
    bounds = {
        requirement.name.replace("_", "-"): Version(part.version)
        for requirement in requirements("demo", "test")
        for part in requirement.specifier
        if part.operator == ">="
    }
    assert {name: pins.get(name) for name in bounds} == bounds
