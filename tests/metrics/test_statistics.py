"""Intervals, corrections and ranks have the values of published tables."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from cl_graft.metrics.statistics import holm, mean_interval, paired_t_test

# Quantiles of Student's t as in any table, t_0.975 with 2, 4 and 9 degrees of freedom.
STUDENT = {2: 4.303, 4: 2.776, 9: 2.262}


@pytest.mark.parametrize(("degrees", "t"), STUDENT.items())
def test_an_interval_is_t_standard_errors_wide(degrees, t):
    values = [float(v) for v in range(degrees + 1)]
    middle, interval = mean_interval(values)
    assert interval is not None
    error = float(torch.tensor(values).std()) / math.sqrt(degrees + 1)
    assert middle == pytest.approx(degrees / 2)
    assert interval[1] - middle == pytest.approx(t * error, rel=1e-3)
    assert middle - interval[0] == pytest.approx(interval[1] - middle)


@pytest.mark.parametrize("values", [[0.5], [0.4, 0.6], [0.5] * 3, [0.1 + 0.2, 0.3, 0.3]])
def test_of_fewer_than_three_values_and_of_equal_ones_nothing_is_known(values):
    middle, interval = mean_interval(values)
    assert middle == pytest.approx(sum(values) / len(values))
    assert interval is None
    assert paired_t_test(values, [0.0] * len(values)) == (None, None)


def test_equal_differences_of_scores_are_equal_whatever_they_are_rounded_to():
    first, second = [0.7, 0.8, 0.9], [0.6, 0.7, 0.8]
    assert len({a - b for a, b in zip(first, second, strict=True)}) > 1
    assert paired_t_test(first, second) == (None, None)


@given(st.lists(st.floats(-1, 1), min_size=3, max_size=6))
@example([0.0, 0.0, 2.225073858507e-311])  # its square is 0
@settings(max_examples=50)
def test_a_mean_is_told_from_zero_where_its_interval_leaves_zero_out(differences):
    _, interval = mean_interval(differences)
    t, p = paired_t_test(differences, [0.0] * len(differences))
    assert (interval is None) == (p is None) == (t is None)
    if interval is not None and p is not None and min(map(abs, interval)) > 1e-9:
        assert stats.ttest_1samp(differences, 0.0).pvalue == pytest.approx(p, rel=1e-6, abs=1e-12)
        assert (p < 0.05) == (interval[0] > 0 or interval[1] < 0)


def test_holm_multiplies_the_smallest_by_all_and_never_changes_the_order():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []
