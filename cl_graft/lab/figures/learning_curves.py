"""Figures of how a task is learned: loss and dev score over steps, a line a strategy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from cl_graft.lab.figures.stream_curves import NAMED, line_style, mark_range
from cl_graft.metrics.figure_style import figure_style

Points = Sequence[tuple[int, float]]


@dataclass(frozen=True)
class Learning:
    """What was measured while one strategy learned a task.

    Attributes:
        loss: Training loss over steps.
        dev: Score on dev, a fraction.
        dense_loss: Training loss of the dense run before it.
        dense_dev: Score on dev in that run.
    """

    loss: Points = ()
    dev: Points = ()
    dense_loss: Points = ()
    dense_dev: Points = ()


@figure_style()
def learning_curves(found: Mapping[str, Learning], *, title: str, measure: str) -> Figure:
    """Draw the training loss and the dev score of each strategy; dense runs are thin and dotted.

    Args:
        found: By strategy; the first ones get colours.
        title: Printed above.
        measure: Name of the dev score.
    """
    figure = Figure(figsize=(9, 4.2))
    left, right = figure.subplots(1, 2, sharex=True)
    for number, (name, own) in enumerate(found.items()):
        style = line_style(number)
        every = max(1, len(own.loss) // 8)
        thin = {"color": style["color"], "linestyle": ":", "linewidth": 1, "marker": "."}
        label = name if number < NAMED else None
        for place, points in enumerate((own.loss, own.dev, own.dense_loss, own.dense_dev)):
            if not points:
                continue
            scale = 100 if place % 2 else 1
            steps, values = zip(*((step, scale * value) for step, value in points), strict=True)
            more = thin if place > 1 else {**style, "markevery": 1 if place else every}
            named = None if place else label
            (right if place % 2 else left).plot(steps, values, label=named, **more)
    left.set(xlabel="step", ylabel="training loss")
    right.set(xlabel="step", ylabel=f"{measure} on dev (%)")
    left.set_ylim(bottom=min(0.0, left.get_ylim()[0]))
    if right.lines:
        mark_range(right)
    else:
        right.set_axis_off()
    for axes in (left, right):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(axis="y")
    figure.suptitle(title)
    if any(own.loss for own in list(found.values())[:NAMED]):
        figure.legend(loc="outside lower center", ncols=4)
    return figure
