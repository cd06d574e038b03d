"""The measures of a stream obey their definitions, and are None where those need a missing cell."""

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
