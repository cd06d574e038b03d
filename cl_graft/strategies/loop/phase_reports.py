"""Reports of grafting's own phases through a strategy's evaluator and loggers.

Before a region trains, a dense run and localization take longer than the training itself. Their
losses and dev scores are published as every metric of the strategy is, so TensorBoard and other
loggers show them; text loggers say first what the task will cost, and how far a phase is.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from avalanche.evaluation import PluginMetric
from avalanche.evaluation.metric_results import MetricValue
from avalanche.logging import TextLogger

from cl_graft.localization import find_localizer
from cl_graft.localization.grafting_settings import GraftingSettings
from cl_graft.training.dense_run import Progress, ignore_progress

__all__ = ["PhaseReports", "describe_cost"]

logger = logging.getLogger(__name__)

_SECONDS_APART = 10.0
_NAMES = {
    "earlier": "choice of earlier tasks",
    "dense": "dense run",
    "warm-up": "fit of the head",
    "localize": "localization",
}


class PhaseReports(PluginMetric[None]):
    """Publish losses and dev scores of one task's phases, and write how far they are.

    Values are called as in ``Loss/dense_phase/train_stream/Task000/Exp000``, with the phases
    ``dense``, ``localize`` and ``region``; they are plotted over the phase's own steps, from 1.

    Args:
        strategy: The strategy, at the start of an experience.
        name: The task's name.
        label: Label of the task.
        progress: Function called as (phase, step, steps), too.
    """

    def __init__(
        self, strategy: Any, *, name: str, label: int, progress: Progress | None = None
    ) -> None:
        super().__init__()
        self._evaluator = strategy.evaluator
        self._strategy = strategy
        self._name = name
        experience = strategy.experience.logging()
        stream = experience.origin_stream.name
        self._where = f"{stream}_stream/Task{label:03d}/Exp{experience.current_experience:03d}"
        self._progress = progress or ignore_progress
        self._reported_at = time.monotonic()
        self._losses: dict[tuple[str, int], float] = {}

    def step(self, phase: str, step: int, steps: int) -> None:
        """Report how far a phase is, to text loggers when it ends or ten seconds have passed."""
        self._progress(phase, step, steps)
        now = time.monotonic()
        if step == steps or now - self._reported_at >= _SECONDS_APART:
            self._reported_at = now
            loss = self._losses.get((phase, step))
            shown = "" if loss is None else f", loss {loss:.4g}"
            self.say(f"{_NAMES.get(phase, phase)}: step {step} of {steps}{shown}")

    def measure(self, phase: str, name: str, step: int, value: float) -> None:
        """Publish a value of a phase to the strategy's loggers."""
        if name == "Loss":
            self._losses = {(phase, step): value}
        if not self._evaluator.active:
            return
        full = f"{name}/{phase}_phase/{self._where}"
        self._evaluator.publish_metric_value(MetricValue(self, full, float(value), step))
        self._evaluator.after_phase_step(self._strategy)  # hands it on to the loggers

    def say(self, text: str) -> None:
        """Write a line about the task to text loggers and to Python's logging."""
        line = f"{self._name}: {text}"
        logger.info("%s", line)
        for each in self._evaluator.loggers:
            if isinstance(each, TextLogger):
                each.file.write(f"{line}\n")

    def result(self) -> None:
        """Return nothing: values are published as they come."""

    def reset(self) -> None:
        """Forget nothing: values are published as they come."""


def describe_cost(strategy: Any, settings: GraftingSettings, *, rows: int) -> str:
    """Say what a task costs before and beside the strategy's own steps, as multiples of them.

    Args:
        strategy: The strategy, at the start of an experience.
        settings: Settings of grafting of the task.
        rows: Training rows of the task.
    """
    steps = strategy.train_epochs * len(strategy.dataloader)
    own = max(1, steps * strategy.train_mb_size)
    run, localizer = settings.fine_tuning, find_localizer(settings.localizer)
    costs: list[tuple[str, int]] = []
    if localizer.needs_dense_run:
        text = f"a dense run of {run.steps} steps of {run.batch_size} rows"
        costs.append((text, run.steps * run.batch_size))
    batch = min(settings.mask_batch, rows)
    if localizer.needs_gradients:
        text = f"localization on {settings.mask_steps} batches of {batch} rows"
        costs.append((text, settings.mask_steps * batch))
    parts = [f"{text} ({spent / own:.1f} times)" for text, spent in costs]
    if settings.retrain:
        costs.append(("", own))
        parts.append("the region's training (once)")
    total = sum(spent for _, spent in costs) / own
    return (
        f"{', '.join(parts)}: about {total:.1f} times the strategy's own {steps} steps of "
        f"{strategy.train_mb_size} rows, less where the cache answers"
    )
