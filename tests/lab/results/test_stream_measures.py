"""Measures of several runs along the stream."""

import pytest
from small_results import small_result

from cl_graft.lab.results.stream_measures import gain_from_earlier


def test_what_earlier_tasks_gave_is_measured_against_a_run_of_the_same_tasks_and_seed():
    ours, alone = (
        small_result(R=[[0.9, None], [0.9, 0.8]]),
        small_result(R=[[0.9, None], [0.9, 0.7]]),
    )
    assert gain_from_earlier(ours, alone) == pytest.approx(0.1)
    with pytest.raises(ValueError, match="the same seed: 0 and 1"):
        gain_from_earlier(ours, small_result(seed=1))
    with pytest.raises(ValueError, match="the same data_fingerprints"):
        gain_from_earlier(ours, small_result(data_fingerprints={"a": "x", "b": "z"}))
