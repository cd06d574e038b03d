"""Settings that cannot make a graft are refused when they are made."""

import pytest

from cl_graft.errors import InputError
from cl_graft.localization.grafting_settings import GraftingSettings


@pytest.mark.parametrize("density", [0, -0.1, 1.5])
def test_a_density_out_of_range_is_refused(density):
    with pytest.raises(ValueError, match=r"density: must be in \(0, 1\]"):
        GraftingSettings(density=density)


def test_an_unknown_localizer_is_refused_when_the_settings_are_made():
    with pytest.raises(InputError, match="did you mean 'learned_mask'"):
        GraftingSettings(localizer="learned-mask")
