"""Intervals and tests of the package are wrong as seldom as they say, and the check would tell."""

from __future__ import annotations

import json

import pytest
from benchmark_scripts import run_script
from null_hypotheses import CHECKS, measure
from scipy import stats

TRIALS = 300
SURE = 1e-4
"""Chance that a test here fails with another seed though the function is right."""


def checks(kind: str) -> list[object]:
    return [
        pytest.param(check, id=f"{check.function}, {check.null}")
        for check in CHECKS
        if check.kind == kind
    ]


@pytest.mark.parametrize("check", checks("holds"))
def test_under_the_null_the_stated_error_rate_holds(check):
    rate = measure(check, trials=TRIALS, seed=1)
    assert rate.wrong <= stats.binom.ppf(1 - SURE, TRIALS, check.stated)
    if check.exact:
        assert rate.wrong >= stats.binom.ppf(SURE, TRIALS, check.stated)


@pytest.mark.parametrize("check", [*checks("dependent"), *checks("not said")])
def test_dependent_samples_and_skewed_values_are_told_by_the_same_count(check):
    rate = measure(check, trials=TRIALS, seed=1)
    assert rate.low > check.stated


def test_rates_are_stored_with_their_table(tmp_path):
    run_script("error_rates.py", "--trials", 3, "--results", tmp_path)
    stored = json.loads((tmp_path / "error_rates.json").read_text())
    assert len(stored["rates"]) == len(CHECKS)
    assert stored["command"].endswith("--trials 3")
    text = (tmp_path / "error_rates.md").read_text()
    assert all(check.null.replace("%", " %") in text for check in CHECKS)
