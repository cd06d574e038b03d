"""Figures of one task: how it is learned, and answered numbers against the right ones."""

from __future__ import annotations

import math
from collections.abc import Mapping

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from cl_graft.lab import figures
from cl_graft.lab.results.tables import points
from cl_graft.lab.results.task_files import TaskCurves, TaskNumbers


@figures.figure_style()
def learning_curves(curves: Mapping[str, TaskCurves], *, title: str, measure: str) -> Figure:
    """Draw the training loss and the dev score of each strategy over all steps of a task.

    A dense run is thin and dotted, and the training of the region begins after its last step.
    """
    figure = Figure(figsize=(9, 4.2))
    left, right = figure.subplots(1, 2, sharex=True)
    begins: set[int] = set()
    for number, (name, task_curves) in enumerate(curves.items()):
        train, dense = task_curves.train, task_curves.dense
        last = max((step for step, _ in (*dense.loss, *dense.dev)), default=0)
        if last and train.loss:
            begins.add(last)
        line = figures.line_style(number)
        thin = {"color": line["color"], "linestyle": ":", "linewidth": 1, "marker": "."}
        for phase, look, before in ((train, line, last), (dense, thin, 0)):
            if phase.loss:
                label = name if phase is train and number < figures.NAMED else None
                every = max(1, len(phase.loss) // 8) if phase is train else 1
                losses = [(before + step, loss) for step, loss in phase.loss]
                left.plot(*zip(*losses, strict=True), label=label, markevery=every, **look)
            if phase.dev:
                scores = [(before + step, 100 * score) for step, score in phase.dev]
                right.plot(*zip(*scores, strict=True), **look)
    left.set(xlabel="step", ylabel="training loss")
    right.set(xlabel="step", ylabel=f"{measure} on dev (%)")
    left.set_ylim(bottom=min(0.0, left.get_ylim()[0]))
    if right.lines:
        figures.mark_range(right)
    else:
        right.set_axis_off()
    for axes in (left, right):
        for number, step in enumerate(sorted(begins) if axes.axison else ()):
            said = "training of the region begins" if not number and axes is left else None
            axes.axvline(step, color=figures.GREY, linewidth=1, zorder=0, label=said)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(axis="y")
    figure.suptitle(title)
    if any(task_curves.train.loss for task_curves in list(curves.values())[: figures.NAMED]):
        figure.legend(loc="outside lower center", ncols=4)
    return figure


@figures.figure_style()
def number_panels(tasks: Mapping[str, TaskNumbers], *, title: str) -> Figure:
    """Draw answers against right numbers, a panel a task; on the dashed line the two are equal.

    Both axes of a panel have the same limits, those of all its numbers, so that answers which
    hardly vary are seen to.
    """
    columns = min(figures.PANEL_COLUMNS, len(tasks))
    rows = math.ceil(len(tasks) / columns)
    figure = Figure(figsize=(2.9 * columns + 1.2, 3.1 * rows + 0.8))
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes, (task, numbers) in zip(grid.flat, tasks.items(), strict=False):
        right, answers = zip(*((n.right, n.answer) for n in numbers.shown), strict=True)
        low, high = min(*right, *answers), max(*right, *answers)
        margin = (high - low or max(1.0, abs(low))) / 20
        limits = low - margin, high + margin
        axes.plot(limits, limits, color=figures.TEXT_COLOUR, linestyle="--", linewidth=1)
        axes.plot(right, answers, "o", markersize=4, color=figures.PALETTE[0], alpha=0.6)
        axes.set(xlim=limits, ylim=limits, aspect="equal")
        axes.locator_params(nbins=5)
        scores = numbers.end
        said = f"Pearson {points(scores.pearson)}, Spearman {points(scores.spearman)}"
        axes.set_title(f"{task}\n{said}", fontsize="small")
        axes.grid()
    figures.switch_off_empty_panels(grid, len(tasks))
    figure.suptitle(title)
    figure.supxlabel("right number", fontsize="medium")
    figure.supylabel("answer", fontsize="medium")
    return figure
