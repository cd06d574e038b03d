"""Measures of a stream obey their definitions, of all tasks and of those of one metric."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

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

MEASURES = [
    average_accuracy,
    backward_transfer,
    forgetting,
    accuracy_over_stream,
    backward_transfer_over_stream,
]

# Three experiences, worked out by hand below.
R = [[0.90, 0.30, 0.50], [0.80, 0.70, 0.60], [0.85, 0.65, 0.95]]

score = st.floats(0, 1, allow_nan=False)


@st.composite
def full_matrices(draw, min_size=2):
    size = draw(st.integers(min_size, 6))
    return draw(
        st.lists(st.lists(score, min_size=size, max_size=size), min_size=size, max_size=size)
    )


@st.composite
def triangles(draw):
    matrix = draw(full_matrices())
    return [[x if j <= i else None for j, x in enumerate(row)] for i, row in enumerate(matrix)]


@st.composite
def constant_columns(draw):
    row = draw(st.lists(score, min_size=2, max_size=6))
    return [[x if j <= i else None for j, x in enumerate(row)] for i, _ in enumerate(row)]


def test_average_accuracy_is_the_mean_of_the_last_row():
    assert average_accuracy(R) == pytest.approx((0.85 + 0.65 + 0.95) / 3)


def test_measures_over_the_stream_take_every_moment():
    below = [0.90, 0.80, 0.70, 0.85, 0.65, 0.95]
    assert accuracy_over_stream(R) == pytest.approx(sum(below) / 6)
    moved = [0.80 - 0.90, 0.85 - 0.90, 0.65 - 0.70]
    assert backward_transfer_over_stream(R) == pytest.approx(sum(moved) / 3)
    assert forward_transfer_over_stream(R) == pytest.approx((0.30 + 0.50 + 0.60) / 3)
    assert forward_transfer_over_stream([[0.9, None], [0.8, 0.7]]) is None


def test_backward_transfer_compares_the_last_row_with_the_diagonal():
    assert backward_transfer(R) == pytest.approx(((0.85 - 0.90) + (0.65 - 0.70)) / 2)


def test_forward_transfer_compares_the_cells_above_the_diagonal_with_the_baseline():
    measured = forward_transfer(R, baseline=[0.5, 0.2, 0.4])
    assert measured == pytest.approx(((0.30 - 0.2) + (0.60 - 0.4)) / 2)


def test_forgetting_compares_the_best_earlier_score_with_the_last():
    assert forgetting(R) == pytest.approx(((0.90 - 0.85) + (0.70 - 0.65)) / 2)


def test_forgetting_does_not_count_a_score_from_before_the_experience_was_learned():
    assert forgetting([[0.9, 0.8, None], [0.9, 0.5, None], [0.9, 0.5, 0.1]]) == 0.0


def test_forgetting_is_negative_where_an_experience_ends_above_its_earlier_best():
    assert forgetting([[0.5, None], [0.7, 0.9]]) == pytest.approx(-0.2)


@given(constant_columns())
def test_nothing_is_transferred_or_forgotten_where_no_score_changes(matrix):
    assert backward_transfer(matrix) == 0.0
    assert forgetting(matrix) == 0.0


@given(triangles())
def test_forgetting_is_at_least_what_backward_transfer_lost(matrix):
    lost, transferred = forgetting(matrix), backward_transfer(matrix)
    assert lost is not None
    assert transferred is not None
    assert lost >= -transferred - 1e-12


@given(full_matrices(), st.data())
def test_a_missing_score_of_the_last_row_makes_every_measure_undefined(matrix, data):
    column = data.draw(st.integers(0, len(matrix) - 2))
    matrix[-1][column] = None
    assert {measure(matrix) for measure in MEASURES} == {None}


def test_forward_transfer_is_undefined_without_baseline_or_zero_shot_scores():
    assert forward_transfer(R) is None
    assert forward_transfer(R, baseline=[0.1, None, 0.2]) is None
    assert forward_transfer([[0.5, None], [0.5, 0.5]], baseline=[0.1, 0.1]) is None


def test_forward_transfer_never_looks_at_the_first_baseline():
    assert forward_transfer(R, baseline=[None, 0.3, 0.6]) == 0.0


def test_one_experience_has_an_average_and_nothing_else():
    assert average_accuracy([[0.7]]) == 0.7
    assert backward_transfer([[0.7]]) is None
    assert forgetting([[0.7]]) is None
    assert forward_transfer([[0.7]], baseline=[0.1]) is None


def test_an_empty_stream_has_no_measures():
    assert {measure([]) for measure in MEASURES} == {None}


@pytest.mark.parametrize("measure", [*MEASURES, forward_transfer])
def test_a_matrix_that_is_not_square_is_refused(measure):
    with pytest.raises(ValueError, match=r"row 1 has 1 cells, expected 2"):
        measure([[0.5, None], [0.5]])


@pytest.mark.parametrize("measure", [*MEASURES, forward_transfer])
def test_a_score_that_is_not_finite_is_refused(measure):
    with pytest.raises(ValueError, match=r"R\[1\]\[0\] is nan"):
        measure([[0.5, None], [float("nan"), 0.5]])


def test_a_baseline_of_another_length_is_refused():
    with pytest.raises(ValueError, match="expected 3, got 2"):
        forward_transfer(R, baseline=[0.1, 0.2])


def test_the_gain_over_isolated_training_is_the_mean_difference_of_the_diagonal():
    assert gain_over_isolated(R, isolated=[None, 0.5, 0.5]) == pytest.approx(
        (R[1][1] + R[2][2]) / 2 - 0.5
    )
    assert gain_over_isolated(R, isolated=[0.1, None, 0.5]) is None
    assert gain_over_isolated([[0.7]], isolated=[0.1]) is None
    with pytest.raises(ValueError, match="expected 3, got 2"):
        gain_over_isolated(R, isolated=[0.1, 0.2])


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
