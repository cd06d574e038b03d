"""What `pip install cl-graft` brings along, and under which licences.

    python tests/stress/dependency_licences.py           # writes docs/project/licences.md

The list is read off the metadata of what is installed, followed from the dependencies of this
project's own `pyproject.toml`.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "project" / "licences.md"

_FROM_TEXT = (
    ("mit license", "MIT"),
    ("apache license", "Apache-2.0"),
    ("matplotlib", "PSF-2.0 (matplotlib's own form)"),
    ("3-clause bsd", "BSD-3-Clause"),
    ("redistribution and use in source and binary forms", "BSD-3-Clause"),
)
"""Licences whose metadata hold their text in place of their name."""


@dataclass(frozen=True)
class Dependency:
    """An installed distribution.

    Attributes:
        name: Its name.
        version: Its version.
        licence: What its metadata say, as short as they allow.
        by: What asks for it; empty for this project.
    """

    name: str
    version: str
    licence: str
    by: str

    @property
    def lesser(self) -> bool:
        """Whether the licence is the GNU Lesser GPL."""
        return bool(re.search(r"\bLGPL|lesser general public", self.licence, re.IGNORECASE))

    @property
    def general(self) -> bool:
        """Whether the licence is the GNU GPL or AGPL, and no exception is stated with it."""
        text = re.sub(r"\bLGPL[-\w.]*|lesser general public", "", self.licence, flags=re.IGNORECASE)
        return bool(re.search(r"\bA?GPL|(?<!lesser )general public", text, re.IGNORECASE))


def missing_and_installed() -> tuple[dict[str, str], list[Dependency]]:
    """Follow the runtime dependencies; optional ones of this project are left out.

    Returns:
        What is asked for but not installed, with what asks for it; and what is installed.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = [(Requirement(text), "") for text in project["dependencies"]]
    found: dict[str, Dependency] = {}
    missing: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    while asked:
        requirement, by = asked.pop(0)  # breadth first: what this project asks for is its own
        name = canonicalize_name(requirement.name)
        extras = {"", *map(canonicalize_name, requirement.extras)}
        new = {extra for extra in extras if (name, extra) not in seen}
        if not new:
            continue
        seen |= {(name, extra) for extra in new}
        try:
            held = distribution(requirement.name)
        except PackageNotFoundError:
            missing[name] = by or "cl-graft"
            continue
        found.setdefault(
            name, Dependency(held.metadata["Name"], held.version, licence_of(held), by)
        )
        asked += [(deeper, held.metadata["Name"]) for deeper in _requirements(held, new)]
    return missing, sorted(found.values(), key=lambda one: one.name.lower())


def licence_of(held: Distribution) -> str:
    """Return the licence that a distribution's metadata state."""
    metadata = held.metadata
    if metadata["License-Expression"]:
        return metadata["License-Expression"]
    classified = [
        line.rpartition("::")[2].strip()
        for line in metadata.get_all("Classifier") or []
        if line.startswith("License ::") and not line.endswith("OSI Approved")
    ]
    stated = (metadata["License"] or "").strip()
    if stated and "\n" not in stated and len(stated) <= 60:
        return stated
    if classified:
        return "; ".join(classified)
    low = stated.lower()
    return next((name for start, name in _FROM_TEXT if start in low), stated[:60] or "not stated")


def render(dependencies: Iterable[Dependency]) -> str:
    """Return the page of licences."""
    lines = [
        "# Licences of dependencies",
        "",
        "cl_graft itself is under the Apache License 2.0. This is what `pip install cl-graft`",
        "brings along, as the packages state it in their metadata, in the environment of",
        "`constraints.txt` on Linux, with torch's build for CPUs; its CUDA build brings NVIDIA's",
        "libraries, too, under NVIDIA's own licences. None is under the GPL or the AGPL; what is",
        "under the LGPL says so",
        "([decision 15](../decisions/15-libraries.md)).",
        "The page is written by `python tests/stress/dependency_licences.py`.",
        "",
        "| package | version | licence | asked for by |",
        "| --- | --- | --- | --- |",
    ]
    lines += [
        f"| {one.name} | {one.version} | {one.licence.replace('|', '/')} | {one.by or 'cl_graft'} |"
        for one in dependencies
    ]
    return "\n".join(lines) + "\n"


def _requirements(held: Distribution, extras: Iterable[str]) -> list[Requirement]:
    """Return what a distribution needs here, with some of its extras."""
    needed = [Requirement(text) for text in held.requires or []]
    return [
        one
        for one in needed
        if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in extras)
    ]


def main() -> None:
    """Write the page; say what is missing."""
    missing, installed = missing_and_installed()
    PAGE.write_text(render(installed), encoding="utf-8")
    for name, by in missing.items():
        sys.stderr.write(f"{name}, which {by} asks for, is not installed\n")


if __name__ == "__main__":
    main()
