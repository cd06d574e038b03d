"""The page on transformers runs as it stands, with no more installed than it says."""

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import pytest
from docs.pages import DOCS, ROOT, blocks, typed_commands
from docs.test_oldest_versions import requirements
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PAGE = DOCS / "guides" / "transformers.md"


def _asked(found: Distribution, extras: Iterable[str]) -> Iterator[Requirement]:
    """What an installed distribution asks for."""
    for needed in map(Requirement, found.requires or ()):
        given = ({"extra": extra} for extra in ("", *extras))
        if needed.marker is None or any(map(needed.marker.evaluate, given)):
            yield needed


def _needed(asked: Iterable[Requirement]) -> dict[str, Distribution]:
    """The distributions that pip installs here for some requirements, by name."""
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = list(asked)
    while waiting:
        needed = waiting.pop()
        key = canonicalize_name(needed.name), frozenset(needed.extras)
        if key in seen:
            continue
        seen.add(key)
        if key[0] == "cl-graft":
            waiting += requirements(*needed.extras)
            continue
        with suppress(PackageNotFoundError):  # for other systems or Pythons
            found[key[0]] = distribution(needed.name)
            waiting += _asked(found[key[0]], needed.extras)
    return found


def _environment(folder: Path, distributions: Iterable[Distribution]) -> None:
    """Link distributions and this package into a folder."""
    for found in distributions:
        for top in {file.parts[0] for file in found.files or () if ".." not in file.parts}:
            target, link = Path(str(found.locate_file(top))), folder / top
            if target.exists() and not link.exists():
                link.symlink_to(target)
    (folder / "cl_graft").symlink_to(ROOT / "cl_graft")


def _installed() -> dict[str, Distribution]:
    """The distributions that the page's own line installs."""
    line = next(line for line in typed_commands(PAGE) if line.startswith("pip install"))
    requirement = re.search(r"'(cl-graft\[[a-z,]+\])'", line)
    assert requirement is not None
    return _needed([Requirement(requirement[1])])


def test_the_page_says_to_install_the_trainer_and_nothing_of_tests(minilm) -> None:
    del minilm  # the extra `demo` is there
    needed = _installed()
    assert "accelerate" in needed
    assert not {"pytest", "ray", "hypothesis"} & needed.keys()


@pytest.mark.slow
def test_the_page_runs_with_what_it_says_to_install(tmp_path, minilm) -> None:
    del minilm
    site = tmp_path / "site"
    site.mkdir()
    _environment(site, _installed().values())
    program = f"import sys; sys.path.insert(0, {str(site)!r})\n"
    program += "\n".join(block.text for block in blocks(PAGE, "python"))
    (tmp_path / "page.py").write_text(program, encoding="utf-8")
    ran = subprocess.run(
        # -I -S: nothing but the standard library, and what the program itself puts on the path.
        [sys.executable, "-I", "-S", "page.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
