"""Settings that cannot make a graft are refused when they are made."""

import pytest

from cl_graft.errors import InputError
from cl_graft.localization.grafting_settings import GraftingSettings
from cl_graft.training.fine_tuning_settings import FineTuning


@pytest.mark.parametrize("density", [0, -0.1, 1.5])
def test_a_density_out_of_range_is_refused(density):
    with pytest.raises(ValueError, match=r"density: must be in \(0, 1\]"):
        GraftingSettings(density=density)


def test_an_unknown_localizer_is_refused_when_the_settings_are_made():
    with pytest.raises(InputError, match="did you mean 'learned_mask'"):
        GraftingSettings(localizer="learned-mask")


@pytest.mark.parametrize(
    ("changes", "share", "expected"),
    [
        ({}, None, (20, 0)),
        ({}, 0.5, (50, 0)),
        ({}, 1.0, (100, 5)),
        ({}, 0.001, (1, 0)),
        ({"localizer": "learned_mask"}, None, (100, 5)),
        ({"retrain": False}, None, (100, 5)),
        ({"keep_standalone": True}, None, (100, 5)),
    ],
)
def test_a_dense_run_is_short_where_only_movement_is_read(changes, share, expected):
    whole = FineTuning(steps=100, evaluations=5)
    dense = GraftingSettings(**changes).with_dense_run(whole, share).fine_tuning
    assert (dense.steps, dense.evaluations) == expected
