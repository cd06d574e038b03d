"""The curves of a run, for TensorBoard."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from avalanche.logging import BaseLogger

from cl_graft.lab.experiments.run_record import RunRecord
from cl_graft.lab.results.measures import named_measures
from cl_graft.lab.results.run_results import RunResult
from cl_graft.lab.results.task_files import PhaseCurve, TaskCurves, thin_out
from cl_graft.settings import to_dotted
from cl_graft.strategies.tensorboard import OncePerStepTensorboardLogger

_MEASURES = ("average", "backward_transfer", "forward_transfer", "forgetting")
"""Measures that are drawn over the stream, one curve for each metric, beside the tasks' scores."""

_NOT_OF_A_RUN = ("comparison", "output")
"""Parts of a config that do not describe a single run; its strategy's settings are added."""

_PHASES = {"train": "train", "region": "train", "dense": "dense", "localize": "localization"}
"""Group of tags by phase; a region's training is drawn where other strategies draw their loop."""

_TRAINING = {"Loss": "loss", "DevScore": "dev_score", "LearningRate": "learning_rate"}


class TrainingCurves(BaseLogger):
    """Write what a strategy publishes while it trains to a run's curves, under the run's tags.

    What is measured on test rows is left out: `draw_row` writes it once a task.
    """

    def __init__(self, curves: OncePerStepTensorboardLogger, tasks: Sequence[str]) -> None:
        super().__init__()
        self._curves = curves
        self._tasks = tasks

    def log_single_metric(self, name: str, value: Any, x_plot: int) -> None:
        """Write a loss, a dev score or a learning rate, unless its tag has a step as late."""
        found = re.fullmatch(r"(\w+)/(\w+)_phase/train_stream/Task\d+/Exp(\d+)", name)
        if found is None:
            return
        measure, phase, number = found.groups()
        tag = f"{_PHASES[phase]}/{_TRAINING[measure]}/{self._tasks[int(number)]}"
        # A run that goes on within a task reports the steps of the task's earlier phases again.
        if x_plot > (self._curves.last_step(tag) or 0):
            self._curves.log_single_metric(tag, value, x_plot)


def collect_curves(
    curves: OncePerStepTensorboardLogger, tasks: Sequence[str]
) -> dict[str, TaskCurves]:
    """Return what a run's curves hold of learning each task, for its report."""
    found = curves.scalars()

    def phase(name: str, task: str) -> PhaseCurve:
        loss, dev = (found.get(f"{name}/{kind}/{task}", []) for kind in ("loss", "dev_score"))
        return PhaseCurve(thin_out(loss), tuple((step, round(value, 6)) for step, value in dev))

    made = {task: TaskCurves(phase("train", task), phase("dense", task)) for task in tasks}
    return {task: own for task, own in made.items() if own != TaskCurves()}


def draw_config(record: RunRecord, curves: OncePerStepTensorboardLogger) -> None:
    """Add the settings that decide the bits to the curves, as text."""
    settings = {part: own for part, own in record.config.items() if part != "output"}
    code = json.dumps(settings, indent=1).replace("\n", "\n    ")
    title = f"{record.strategy}, seed {record.seed}"
    curves.writer.add_text("config", f"{title}\n\n    {code}")


def draw_row(result: RunResult, curves: OncePerStepTensorboardLogger) -> None:
    """Add the measurements after the latest task to the curves, at the number of tasks learned."""
    step = len(result.R)
    values = {f"stream/{name}": value for name, value in named_measures(result, _MEASURES).items()}
    for j, name in enumerate(result.tasks[:step]):
        values[f"test/score/{name}"] = result.R[-1][j]
        values[f"test/ece/{name}"] = result.ece[-1][j]
    latest = result.tasks[step - 1]
    values |= {
        f"region/{name}": value for name, value in result.coordinates.get(latest, {}).items()
    }
    values["cost/bytes"] = result.bytes[latest]
    seconds = result.find_seconds(latest)
    values["cost/seconds"] = sum(seconds.values())
    values |= {f"cost/seconds/{phase.replace(' ', '_')}": own for phase, own in seconds.items()}
    for tag, value in values.items():
        if value is not None:
            curves.log_single_metric(tag, value, step)


def draw_hparams(result: RunResult, curves: OncePerStepTensorboardLogger) -> None:
    """Make settings and headline measures of a run its row of TensorBoard's page HParams."""
    parts = {name: own for name, own in result.config.items() if name not in _NOT_OF_A_RUN}
    config = to_dotted(parts)
    density = config.pop("grafting.density", None)
    said = {"strategy": result.strategy, "seed": result.seed, **config, **result.settings}
    settings = {
        name: value if isinstance(value, bool | int | float | str) else json.dumps(value)
        for name, value in said.items()
        if value is not None
    }
    measures = [f"stream/{name}" for name in named_measures(result, _MEASURES)]
    curves.add_hparams(
        settings | ({"density": density} if result.coordinates else {}),
        [*measures, "cost/bytes", "cost/seconds"],
        first=["strategy", "density", "seed"],
    )
