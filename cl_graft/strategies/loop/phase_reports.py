"""Losses and dev scores of training phases, for a strategy's evaluator and loggers."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import Any

import torch
from avalanche.evaluation import PluginMetric
from avalanche.evaluation.metric_results import MetricValue
from avalanche.logging import TextLogger

from cl_graft.runtime.progress import PHASE_NAMES
from cl_graft.runtime.run_context import RunContext
from cl_graft.strategies.strategy import Strategy

logger = logging.getLogger(__name__)

_SECONDS_APART = 10.0


class PhaseReports:
    """Publish losses and dev scores of a task's phases, and write how far they are.

    Names are such as ``Loss/dense_phase/train_stream/Task000/Exp000``; steps are the phase's own.
    """

    def __init__(self, strategy: Strategy, context: RunContext, *, name: str, label: int) -> None:
        self._evaluator = strategy.evaluator
        self._strategy = strategy
        self._name = name
        self._label = label
        self._progress = context.progress
        self.context = replace(context, progress=self.step, measure=self.measure)
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
            self.say(f"{PHASE_NAMES.get(phase, phase)}: step {step} of {steps}{shown}")

    def measure(self, phase: str, name: str, step: int, value: float) -> None:
        """Publish a value of a phase to the strategy's loggers."""
        if name == "Loss":
            self._losses = {(phase, step): value}
        publish(self._strategy, self, name, phase, label=self._label, step=step, value=value)

    def say(self, text: str) -> None:
        """Write a line about the task to text loggers and to Python's logging."""
        line = f"{self._name}: {text}"
        logger.info("%s", line)
        for each in self._evaluator.loggers:
            if isinstance(each, TextLogger):
                each.file.write(f"{line}\n")


class TrainingReports(PluginMetric[None]):
    """Publish the loss and the learning rate of every step of a strategy's own loop.

    Steps are those of the experience, from 1, so that curves of all strategies can be compared.

    Runs at: before_update, after_training_iteration.
    """

    def __init__(self) -> None:
        super().__init__()
        self._rate = 0.0

    def before_update(self, strategy: Strategy) -> None:
        """Note the learning rate of the step: that of the first group of parameters."""
        self._rate = float(strategy.optimizer.param_groups[0]["lr"])

    def after_training_iteration(self, strategy: Strategy) -> list[MetricValue]:
        """Return the loss and the learning rate."""
        label = find_first_label(strategy)
        step = strategy.clock.train_exp_iterations + 1
        loss = float(torch.as_tensor(strategy.loss).detach())
        return [
            MetricValue(self, _full_name(strategy, name, "train", label), value, step)
            for name, value in (("Loss", loss), ("LearningRate", self._rate))
        ]

    def result(self) -> None:
        """Return nothing: values are published as they come."""

    def reset(self) -> None:
        """Forget nothing: values are published as they come."""


def publish(
    strategy: Strategy, origin: Any, name: str, phase: str, *, label: int, step: int, value: float
) -> None:
    """Hand a phase's value to the loggers of a strategy, unless its evaluator is switched off."""
    evaluator = strategy.evaluator
    if evaluator.active:
        full = _full_name(strategy, name, phase, label)
        evaluator.publish_metric_value(MetricValue(origin, full, float(value), step))
        evaluator.after_phase_step(strategy)  # hands it on to the loggers


def find_first_label(strategy: Strategy) -> int:
    """Return the smallest task label of the experience, 0 without labels."""
    return int(min(getattr(strategy.experience, "task_labels", None) or [0]))


def _full_name(strategy: Strategy, name: str, phase: str, label: int) -> str:
    """Return a measure's name as Avalanche makes them."""
    experience = strategy.experience.logging()
    where = f"{experience.origin_stream.name}_stream"
    return f"{name}/{phase}_phase/{where}/Task{label:03d}/Exp{experience.current_experience:03d}"
