"""Scores of different metrics are averaged apart, and together as shares of a reference alone."""

import pytest

from cl_graft.metrics import (
    accuracy_over_stream,
    average_accuracy,
    backward_transfer,
    backward_transfer_over_stream,
    forgetting,
    forward_transfer,
    forward_transfer_over_stream,
    gain_over_isolated,
)
from cl_graft.metrics.by_metric import average_share, group_by_metric, too_small

# Three experiences; the first and the last are scored alike.
R = [[0.90, 0.30, 0.50], [0.80, 0.70, 0.60], [0.85, 0.65, 0.95]]


def test_each_measure_of_some_tasks_is_worked_out_by_hand():
    assert average_accuracy(R, tasks=(0, 2)) == pytest.approx((0.85 + 0.95) / 2)
    assert average_accuracy(R, tasks=(1,)) == 0.65
    # The last task has nothing behind it, so the mean is over the first alone.
    assert backward_transfer(R, tasks=(0, 2)) == pytest.approx(0.85 - 0.90)
    assert backward_transfer(R, tasks=(1,)) == pytest.approx(0.65 - 0.70)
    # The best may have come after a task of another metric.
    assert forgetting(R, tasks=(1,)) == pytest.approx(0.70 - 0.65)
    assert forgetting(R, tasks=(0,)) == pytest.approx(0.90 - 0.85)
    assert forward_transfer(R, baseline=[0, 0.25, 0.4], tasks=(0, 2)) == pytest.approx(0.6 - 0.4)
    assert gain_over_isolated(R, isolated=[0, 0.5, 0.9], tasks=(1,)) == pytest.approx(0.7 - 0.5)
    assert accuracy_over_stream(R, tasks=(1,)) == pytest.approx((0.70 + 0.65) / 2)
    assert backward_transfer_over_stream(R, tasks=(0,)) == pytest.approx((-0.10 - 0.05) / 2)
    assert forward_transfer_over_stream(R, tasks=(2,)) == pytest.approx((0.50 + 0.60) / 2)


def test_a_measure_is_none_where_no_task_of_a_metric_has_one():
    assert backward_transfer(R, tasks=(2,)) is None
    assert forgetting(R, tasks=(2,)) is None
    assert forward_transfer(R, baseline=[0, 0, 0], tasks=(0,)) is None
    assert average_accuracy(R, tasks=()) is None


def test_tasks_are_grouped_by_metric_and_f1_is_one_whatever_its_positive_label():
    metrics = ["f1", "accuracy", "f1_of_class_0", "pearson"]
    assert group_by_metric(metrics) == {"f1": (0, 2), "accuracy": (1,), "pearson": (3,)}


def test_shares_are_averaged_and_not_cut():
    assert average_share([0.45, 0.6, -0.1], [0.5, 0.8, 0.4]) == pytest.approx(
        (0.9 + 0.75 - 0.25) / 3
    )
    assert average_share([0.9], [0.6]) == pytest.approx(1.5)
    assert average_share([], []) is None
    assert average_share([0.5, None], [0.5, 0.5]) is None


def test_no_share_is_taken_of_a_reference_near_zero_or_below():
    assert too_small([{"cola": 0.3, "sst2": 0.9}, {"cola": 0.09, "sst2": 0.8}]) == {"cola": 0.09}
    assert too_small([{"cola": -0.2}]) == {"cola": -0.2}
    assert too_small([{"cola": 0.1}]) == {}
    with pytest.raises(ValueError, match=r"at least 0\.1, got 0\.05"):
        average_share([0.5], [0.05])
