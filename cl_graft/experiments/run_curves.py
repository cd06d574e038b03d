"""The curves and pictures of a run, for TensorBoard."""

from __future__ import annotations

import json
from collections.abc import Mapping

from torch.utils.tensorboard.summary import hparams

from cl_graft.experiments.config import dotted
from cl_graft.experiments.run_record import RunRecord
from cl_graft.figures.heatmaps import overlap_heatmap, r_matrix_heatmap
from cl_graft.figures.reliability import reliability_diagram
from cl_graft.metrics import reliability_bins
from cl_graft.results.measures import named_measures
from cl_graft.results.run_results import RunResult
from cl_graft.results.shown_answers import TaskAnswers
from cl_graft.runtime.escaping import for_markdown
from cl_graft.strategies.stream_scores import StreamScores
from cl_graft.strategies.tensorboard import OncePerStepTensorboardLogger

__all__ = ["draw_answers", "draw_config", "draw_end", "draw_row"]

_MEASURES = ("average", "backward_transfer", "forgetting")
"""Measures that are drawn along the stream, beside the scores of each task: one a metric."""


def draw_config(record: RunRecord, curves: OncePerStepTensorboardLogger) -> None:
    """Add the settings that decide the bits to the curves, as text."""
    settings = {part: own for part, own in record.config.items() if part != "output"}
    code = json.dumps(settings, indent=1).replace("\n", "\n    ")
    title = f"{record.strategy}, seed {record.seed}"
    curves.writer.add_text("config", f"{title}\n\n    {code}")


def draw_row(result: RunResult, curves: OncePerStepTensorboardLogger) -> None:
    """Add the latest row of R to the curves, at the number of experiences learned."""
    step = len(result.R)
    values = named_measures(result, _MEASURES)
    for j, name in enumerate(result.tasks[:step]):
        values[f"R/{name}"] = result.R[-1][j]
        values[f"ece/{name}"] = result.ece[-1][j]
    for tag, value in values.items():
        if value is not None:
            curves.log_single_metric(tag, value, step)


def draw_answers(
    found: Mapping[str, TaskAnswers], curves: OncePerStepTensorboardLogger, *, step: int
) -> None:
    """Show generated answers of each task beside the right ones, as text.

    Args:
        found: Answers by task.
        curves: The log.
        step: Number of tasks that are learned.
    """
    for name, task in found.items():
        rows = [
            " | ".join(map(_cell, (one.text, one.now, one.learned or "", " / ".join(one.right))))
            for one in task.shown
        ]
        since = "The answers are those" if task.same else "Some answers are not those"
        head = "input | answer | when it was learned | right"
        head = f"{since} of the day the task was learned.\n\n{head}\n--- | --- | --- | ---"
        curves.writer.add_text(f"answers/{name}", "\n".join([head, *rows]), step)


def _cell(text: str) -> str:
    """Return a text as a cell of a table."""
    return " ".join(for_markdown(text).split())


def draw_end(result: RunResult, scores: StreamScores, curves: OncePerStepTensorboardLogger) -> None:
    """Add the pictures of a finished run: R, overlap of regions, calibration of every task.

    Its settings and measures become a row of TensorBoard's page HParams.
    """
    step = len(result.R)
    config = {part: own for part, own in result.config.items() if part != "output"}
    said = {"strategy": result.strategy, "seed": result.seed, **dotted(config), **result.settings}
    settings = {
        name: value if isinstance(value, bool | int | float | str) else json.dumps(value)
        for name, value in said.items()
        if value is not None
    }
    found = named_measures(result, _MEASURES)
    measures = {name: value for name, value in found.items() if value is not None}
    if (log := curves.writer.file_writer) is not None:
        for part in hparams(settings, measures):
            log.add_summary(part)
    curves.add_figure("R", r_matrix_heatmap(result.R, result.tasks, score_name="score"), step)
    if result.overlap is not None:
        curves.add_figure("overlap", overlap_heatmap(result.overlap, result.tasks), step)
    for j, name in enumerate(result.tasks):
        logits, targets = scores.predictions(j)
        if targets.ndim > 1 or targets.is_floating_point():
            continue  # only classes of rows have a confidence
        bins = reliability_bins(logits.double().softmax(dim=1), targets)
        curves.add_figure(f"reliability/{name}", reliability_diagram(bins, title=name), step)
