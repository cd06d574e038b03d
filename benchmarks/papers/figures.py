"""The figure of each experiment, drawn from the summary of its measurements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter

from matplotlib.figure import Figure

from cl_graft.lab.figures import Score, score_curves, share_heatmaps
from papers.experiments import Experiment
from papers.measurements import Summary

_SHARE = "share tuned"


def draw_figure(experiment: Experiment, rows: Sequence[Summary]) -> Figure:
    """Draw what an experiment's picture shows."""
    if experiment.heatmaps:
        panels = {
            title: {
                (row.method.removeprefix("region of "), row.task): row.mean
                for row in rows
                if row.measure == measure
            }
            for measure, title in experiment.heatmaps
        }
        y_label, x_label = experiment.heatmap_axes
        return share_heatmaps(panels, title=experiment.title, x_label=x_label, y_label=y_label)
    axis = experiment.axis
    if experiment.against:
        axis, rows = experiment.against, _over(experiment.against, rows)
    scores = [
        Score(row.task, row.method, row.x, row.mean, row.deviation)
        for row in _beside_densities(rows)
        if row.measure == experiment.measure
    ]
    if not scores:
        raise ValueError(f"no measurement of {experiment.measure!r} to draw")
    return score_curves(
        scores,
        title=experiment.title,
        measure=experiment.measure,
        axis=axis,
        logarithmic=experiment.logarithmic,
    )


def _over(measure: str, rows: Sequence[Summary]) -> list[Summary]:
    """Place every number at what a measure is there, in place of x."""
    key = attrgetter("task", "method", "x")
    across = {key(row): row.mean for row in rows if row.measure == measure}
    return [replace(row, x=across[key(row)]) for row in rows if key(row) in across]


def _beside_densities(rows: Sequence[Summary]) -> list[Summary]:
    """Place what comes in sizes, ``"LoRA, rank 2"``, at the share tuned: a curve a kind."""
    shares = {row.method: row.mean for row in rows if row.measure == _SHARE and row.mean < 1}
    return [
        replace(row, x=shares[row.method], method=row.method.partition(",")[0])
        if row.x is None and row.measure != _SHARE and row.method in shares
        else row
        for row in rows
    ]
