"""Curves and bars stand on scales on which each can be read."""

import pytest

from cl_graft.lab.figures.score_curves import Score, score_curves


def _drawn(*scores):
    return score_curves(
        scores, title="Some", measure="share", axis="density", logarithmic=False
    ).axes


@pytest.mark.parametrize(("least", "scale"), [(0.005, "log"), (0.05, "linear"), (0.0, "linear")])
def test_bars_of_which_some_would_be_invisible_stand_on_a_logarithmic_scale(least, scale):
    (panel,) = _drawn(Score("a", "all", None, 1.0, 0.0), Score("a", "few", None, least, 0.0))
    assert panel.get_yscale() == scale


@pytest.mark.parametrize(("top", "shared"), [(10.0, False), (2.0, True)])
def test_curves_that_would_be_flat_beside_others_have_a_scale_of_their_own(top, shared):
    one, other = _drawn(*(
        Score(panel, "m", x, high, 0.0) for panel, high in (("a", 1.0), ("b", top)) for x in (1, 2)
    ))  # fmt: skip
    assert (one.get_ylim() == other.get_ylim()) == shared
