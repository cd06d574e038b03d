"""The learning of each task in a report: loss and dev score over steps, a figure a task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from cl_graft.lab.figures.learning_curves import Learning, learning_curves
from cl_graft.lab.reporting.pictures import Picture
from cl_graft.lab.reporting.report_data import ReportData
from cl_graft.lab.reporting.tables import Cell, Table
from cl_graft.lab.results.formatting import points
from cl_graft.lab.results.learning_curves import TaskCurves
from cl_graft.metrics.figure_style import MOST_PANELS

__all__ = ["draw_learning", "learning_text"]

_KINDS = (
    "loss {value:.4g}",
    "dev {value}",
    "dense run, loss {value:.4g}",
    "dense run, dev {value}",
)


_MOST_CURVES = 200
"""Curves on a page, one a strategy and task: more would make it too large."""


def learning_text(data: ReportData) -> str:
    """Return the paragraph before the figures."""
    text = (
        "Training loss and score on dev while each task was learned, in the first run of each "
        "strategy. Thin and dotted is the dense run that comes before a region's training. "
        "Of long trainings the loss is a mean over stretches of steps."
    )
    if (shown := _count_tasks(data)) < len(data.summary.tasks):
        text += f" Shown are the first {shown} tasks; curves.json of a run holds the others."
    return text


def draw_learning(data: ReportData) -> Iterator[Picture]:
    """Draw the curves of each task of which a run keeps some."""
    for number, task in enumerate(data.summary.tasks[: _count_tasks(data)], start=1):
        curves = {name: own[task] for name, own in data.curves.items() if task in own}
        if not curves:
            continue
        found = {
            name: Learning(own.train.loss, own.train.dev, own.dense.loss, own.dense.dev)
            for name, own in curves.items()
        }
        title = f"{task}: training loss and score on dev while it is learned"
        yield Picture(
            f"learning-{number}",
            title,
            learning_curves(found, title=task, measure=data.summary.metrics[task]),
            _table(curves, title),
            marks={
                name: [_said(kind, part) for kind, part in zip(_KINDS, own.parts, strict=True)]
                for name, own in found.items()
            },
        )


def _count_tasks(data: ReportData) -> int:
    """Return the number of tasks that have a figure."""
    most = min(MOST_PANELS, max(1, _MOST_CURVES // max(1, len(data.curves))))
    return min(most, len(data.summary.tasks))


def _said(kind: str, part: Sequence[tuple[int, float]]) -> list[str]:
    return [
        f"step {step}: " + kind.format(value=value if "loss" in kind else points(value))
        for step, value in part
    ]


def _table(curves: Mapping[str, TaskCurves], title: str) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for name, own in curves.items():
        losses = [own.train.loss[place][1] for place in (0, -1)] if own.train.loss else [None] * 2
        step, best = max(
            own.train.dev, key=lambda point: (point[1], point[0]), default=(None, None)
        )
        rows.append(
            (
                Cell(name),
                *(Cell("–" if loss is None else f"{loss:.4g}", loss) for loss in losses),
                Cell(points(best), best),
                Cell("–" if step is None else f"{step:,}", step),
            )
        )
    head = ("strategy", "loss at the beginning", "loss at the end", "best dev score", "at step")
    return Table(title, head, tuple(rows))
