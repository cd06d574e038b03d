"""What `pip install cl-graft` brings along, packages and data, and under which licences.

python tests/stress/dependency_licences.py           # writes docs/project/licences.md
"""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from cl_graft.data import BUILT_IN

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "project" / "licences.md"
HEAD = """# Licences of dependencies and data

cl_graft itself is under the Apache License 2.0. This is what `pip install cl-graft`
brings along, as the packages state it in their metadata, in the environment of
`constraints.txt` on Linux, with torch's build for CPUs; its CUDA build brings NVIDIA's
libraries, too, under NVIDIA's own licences. None is under the GPL or the AGPL; what is
under the LGPL says so
([decision 15](../decisions/15-libraries.md)).
The page is written by `python tests/stress/dependency_licences.py`.

| package | version | licence | asked for by |
| --- | --- | --- | --- |
"""
DATA_HEAD = """
## Data in the package

The rows of the [built-in tasks](../guides/built_in_tasks.md#built-in-tasks) are in the
wheel, each task under the licence of its source, unchanged but for white space and what
`cl_graft/data/built_in/README.md` says, with how the licence of SNLI was read.

| task | source | licence | read at |
| --- | --- | --- | --- |
"""

# Licences whose metadata hold their text in place of their name.
_FROM_TEXT = (
    ("mit license", "MIT"),
    ("apache license", "Apache-2.0"),
    ("matplotlib", "PSF-2.0 (matplotlib's own form)"),
    ("3-clause bsd", "BSD-3-Clause"),
    ("redistribution and use in source and binary forms", "BSD-3-Clause"),
)


def rows() -> list[str]:
    """Follow the runtime dependencies; optional ones of this project are left out."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = [(Requirement(text), "cl_graft") for text in project["dependencies"]]
    lines: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    while asked:
        requirement, by = asked.pop(0)  # breadth first: what this project asks for is its own
        name = canonicalize_name(requirement.name)
        extras = {"", *map(canonicalize_name, requirement.extras)}
        new = {extra for extra in extras if (name, extra) not in seen}
        seen |= {(name, extra) for extra in new}
        if not new:
            continue
        try:
            held = distribution(requirement.name)
        except PackageNotFoundError:
            sys.stderr.write(f"{name}, which {by} asks for, is not installed\n")
            continue
        shown = held.metadata["Name"]
        licence = licence_of(held).replace("|", "/")
        lines.setdefault(name, f"| {shown} | {held.version} | {licence} | {by} |\n")
        for deeper in map(Requirement, held.requires or []):
            marker = deeper.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in new):
                asked.append((deeper, shown))
    return sorted(lines.values(), key=str.lower)


def licence_of(held: Distribution) -> str:
    """Return the licence that a distribution's metadata state."""
    metadata = held.metadata
    if metadata["License-Expression"]:
        return metadata["License-Expression"]
    stated = (metadata["License"] or "").strip()
    if stated and "\n" not in stated and len(stated) <= 60:
        return stated
    classified = [
        line.rpartition("::")[2].strip()
        for line in metadata.get_all("Classifier") or []
        if line.startswith("License ::") and not line.endswith("OSI Approved")
    ]
    low = stated.lower()
    named = next((name for start, name in _FROM_TEXT if start in low), stated[:60])
    return "; ".join(classified) or named or "not stated"


def data_rows() -> Iterator[str]:
    """A row of the table for each built-in task."""
    for name, folder in BUILT_IN.items():
        meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
        commits = (f"{url} at `{commit[:10]}`" for url, commit in meta["repositories"].items())
        yield f"| {name} | {meta['source']} | {meta['licence']} | {', '.join(commits)} |\n"


if __name__ == "__main__":
    text = "".join((HEAD, *rows(), DATA_HEAD, *data_rows()))
    PAGE.write_text(text, encoding="utf-8")
