"""Figures of how a task is learned have honest axes."""

import pytest

from cl_graft.lab.reporting.task_figures import learning_curves
from cl_graft.lab.results.task_files import PhaseCurve, TaskCurves

GRAFTING = TaskCurves(
    PhaseCurve(((1, 0.7), (2, 0.5)), ((2, 0.8),)), PhaseCurve(((1, 0.6), (2, 0.4)), ((2, 0.9),))
)


def test_losses_begin_at_zero_and_dev_scores_are_points():
    left, right = learning_curves({"a": GRAFTING}, title="t", measure="accuracy").axes
    assert left.get_ylim()[0] == 0
    assert [line.get_ydata()[0] for line in right.lines] == pytest.approx([80, 90])
    assert right.axison
    alone = TaskCurves(PhaseCurve(GRAFTING.train.loss))
    assert not learning_curves({"a": alone}, title="t", measure="f1").axes[1].axison
    assert all(tick == int(tick) for tick in left.get_xticks())
