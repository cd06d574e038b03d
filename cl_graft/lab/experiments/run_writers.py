"""Files that a run writes after each task: a list of writers, one for each output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cl_graft.data.encoded_task import EncodedTask
from cl_graft.lab.experiments.run_answers import collect_answers, collect_errors, collect_numbers
from cl_graft.lab.experiments.run_curves import (
    collect_curves,
    draw_answers,
    draw_hparams,
    draw_pictures,
    draw_row,
)
from cl_graft.lab.experiments.run_record import write_table
from cl_graft.lab.reporting.summary_files import write_run_summary
from cl_graft.lab.results.run_results import RunResult, write_result
from cl_graft.lab.results.task_errors import ERRORS
from cl_graft.lab.results.task_files import ANSWERS, CURVES, NUMBERS
from cl_graft.strategies.stream_scores import StreamScores
from cl_graft.strategies.tensorboard import OncePerStepTensorboardLogger


@dataclass(frozen=True)
class Outcome:
    """State of a run after a task.

    Attributes:
        result: Results so far.
        tasks: Tasks of the stream.
        scores: Measurements so far.
        curves: Logger of the run's curves.
        folder: Folder of the run.
    """

    result: RunResult
    tasks: Sequence[EncodedTask]
    scores: StreamScores
    curves: OncePerStepTensorboardLogger
    folder: Path


def _write_answers(run: Outcome) -> None:
    answers = collect_answers(run.tasks, run.scores, ANSWERS.read(run.folder))
    draw_answers(answers, run.curves, step=len(run.result.R))
    ANSWERS.write(answers, run.folder)


def _write_errors(run: Outcome) -> None:
    ERRORS.write(collect_errors(run.tasks, run.scores, ERRORS.read(run.folder)), run.folder)


def _write_numbers(run: Outcome) -> None:
    NUMBERS.write(collect_numbers(run.tasks, run.scores, NUMBERS.read(run.folder)), run.folder)


def _write_curves(run: Outcome) -> None:
    if run.result.complete:
        draw_hparams(run.result, run.curves)
        CURVES.write(collect_curves(run.curves, run.result.tasks), run.folder)


WRITERS: tuple[Callable[[Outcome], None], ...] = (
    lambda run: draw_row(run.result, run.curves),
    _write_answers,
    _write_errors,
    _write_numbers,
    lambda run: draw_pictures(run.result, run.scores, run.curves),
    _write_curves,
    lambda run: write_table(run.result, run.folder / "metrics.csv"),
    lambda run: write_run_summary(run.result, run.folder),
    lambda run: write_result(run.result, run.folder),
)
"""Writers in their order; the last one says that a complete run is finished."""
