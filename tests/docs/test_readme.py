"""README's example, run as it stands on the real MiniLM, prints what stands beside it."""

import os
import re
import subprocess
import sys

import pytest
from docs.pages import ROOT, blocks

README = ROOT / "README.md"
OTHER_MACHINE = 6.0
"""Points by which a score may differ on another processor: 100 test rows a task."""


def read_scores(printed: str) -> list[list[float]]:
    return [[float(one) for one in re.findall(r"([\d.]+)%", line)] for line in printed.splitlines()]


def test_the_example_has_at_most_twenty_lines_of_code():
    (code,) = blocks(README, "python")
    assert sum(1 for line in code.text.splitlines() if line.strip()) <= 20


def test_what_stands_beside_it_shows_naive_forgetting_and_grafting_not():
    (printed,) = blocks(README, "text")
    rows = read_scores(printed.text)
    assert [len(row) for row in rows] == [1, 2, 3] * 2
    naive, grafting = rows[:3], rows[3:]
    assert naive[2][0] < naive[0][0] - 3
    assert grafting[2][:1] == grafting[0]
    assert grafting[2][:2] == grafting[1]


@pytest.mark.slow
def test_the_example_prints_what_stands_beside_it(minilm):
    (code,), (beside,) = blocks(README, "python"), blocks(README, "text")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code.text],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    expected, printed = read_scores(beside.text), read_scores(done.stdout)
    assert [len(row) for row in printed] == [len(row) for row in expected]
    for row, other in zip(expected, printed, strict=True):
        assert other == pytest.approx(row, abs=OTHER_MACHINE)
    assert printed[5][:1] == printed[3]
