"""Intervals, corrections and ranks have the values of published tables."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cl_graft.analysis import (
    average_ranks,
    critical_difference,
    holm,
    mean_interval,
    paired_t_test,
    spearman,
)

# Quantiles of Student's t as in any table, t_0.975 with 1, 2, 4 and 9 degrees of freedom.
STUDENT = {1: 12.706, 2: 4.303, 4: 2.776, 9: 2.262}


@pytest.mark.parametrize(("degrees", "t"), STUDENT.items())
def test_an_interval_is_t_standard_errors_wide(degrees, t):
    values = [float(v) for v in range(degrees + 1)]
    middle, interval = mean_interval(values)
    assert interval is not None
    error = float(torch.tensor(values).std()) / math.sqrt(degrees + 1)
    assert middle == pytest.approx(degrees / 2)
    assert interval[1] - middle == pytest.approx(t * error, rel=1e-3)
    assert middle - interval[0] == pytest.approx(interval[1] - middle)


def test_of_one_value_no_interval_is_known_and_none_have_no_mean():
    assert mean_interval([0.5]) == (0.5, None)
    with pytest.raises(ValueError, match="no values"):
        mean_interval([])


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=6))
@settings(max_examples=50)
def test_a_mean_is_told_from_zero_where_its_interval_leaves_zero_out(differences):
    _, interval = mean_interval(differences)
    _, p = paired_t_test(differences, [0.0] * len(differences))
    assert interval is not None
    if min(map(abs, interval)) > 1e-9:
        assert (p < 0.05) == (interval[0] > 0 or interval[1] < 0)


def test_holm_multiplies_the_smallest_by_all_and_never_changes_the_order():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_ranks_begin_at_the_best_and_are_shared_by_equals():
    scores = {"worst": [0.1, 0.2], "first": [0.9, 0.8], "second": [0.5, 0.8]}
    assert average_ranks(scores) == {"first": 1.25, "second": 1.75, "worst": 3.0}
    with pytest.raises(ValueError, match="the same comparisons"):
        average_ranks({"a": [1.0], "b": [1.0, 2.0]})


# Demšar, 2006: 4 classifiers on 14 data sets have a critical difference of 1.25 (Section 3.2.4).
@pytest.mark.parametrize(("methods", "sets", "expected"), [(4, 14, 1.25), (2, 1, 1.96)])
def test_the_critical_difference_is_the_published_one(methods, sets, expected):
    assert critical_difference(methods, sets) == pytest.approx(expected, abs=5e-3)
    with pytest.raises(ValueError, match="nothing to compare"):
        critical_difference(1, sets)


def test_rank_correlation_is_unknown_where_one_side_is_constant():
    assert spearman([1, 2, 3], [5, 5, 5]) == (None, None)
