"""Intervals and tests of the package are wrong as seldom as they say, and the check would tell."""

from __future__ import annotations

import json

import pytest
from benchmark_scripts import run_script
from null_hypotheses import CHECKS, measure
from scipy import stats
from slow_cases import slow

TRIALS = 300
SURE = 1e-4
"""Chance that a test here fails with another seed though the function is right."""


LONG = (
    "holm, any of 21 independent tests, 3 seeds",
    "laboratory.sam.differences, p of one pair, 3 cells",
    "laboratory.sam.ranks, 50 ranks of 10 methods on 5 tasks",
    "laboratory.sam.differences, corrected p of any of 45 pairs, 3 cells",
    "compare_with, any of 21 strategies, 3 seeds",
    "compare_with, any of 4 strategies, 3 seeds, 6 orders of each",
)
"""Checks that take seconds, beside quicker ones of the same statistics."""


def checks(kind: str) -> list[object]:
    """Return the checks of a kind; the long ones run in the slow suite."""
    named = {f"{check.function}, {check.null}": check for check in CHECKS if check.kind == kind}
    cases = {name: pytest.param(check, id=name) for name, check in named.items()}
    return [
        *(case for name, case in cases.items() if name not in LONG),
        *slow(*(case for name, case in cases.items() if name in LONG)),
    ]


@pytest.mark.parametrize("check", checks("holds"))
def test_under_the_null_the_stated_error_rate_holds(check):
    rate = measure(check, trials=TRIALS, seed=1)
    assert rate.wrong <= stats.binom.ppf(1 - SURE, TRIALS, check.stated)
    if check.exact:
        assert rate.wrong >= stats.binom.ppf(SURE, TRIALS, check.stated)


@pytest.mark.parametrize("check", checks("dependent"))
def test_dependent_samples_are_told_by_the_same_count(check):
    rate = measure(check, trials=TRIALS, seed=1)
    assert rate.low > check.stated


def test_rates_are_stored_with_their_table(tmp_path):
    run_script("error_rates.py", "--trials", 3, "--results", tmp_path)
    stored = json.loads((tmp_path / "error_rates.json").read_text())
    assert len(stored["rates"]) == len(CHECKS)
    assert stored["command"].endswith("--trials 3")
    text = (tmp_path / "error_rates.md").read_text()
    assert all(check.null.replace("%", " %") in text for check in CHECKS)
