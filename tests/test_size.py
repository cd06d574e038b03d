"""The package and its tests stay of a size that one person can carry.

The bounds are lowered when the totals fall. They are raised only with a reason in the changelog.
"""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

MAX_LINES = {"cl_graft": 46_466, "tests": 36_770, "benchmarks": 11_823}


def count_lines(folder: str) -> int:
    """Lines of all Python files of a folder."""
    files = (ROOT / folder).rglob("*.py")
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)


@pytest.mark.parametrize("folder", MAX_LINES)
def test_the_code_does_not_grow(folder: str) -> None:
    assert count_lines(folder) <= MAX_LINES[folder]
