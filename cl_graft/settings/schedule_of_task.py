"""The schedule of each task: steps, batch size and learning rate, from the config or a grid."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from cl_graft.errors import DivergedError
from cl_graft.runtime.run_context import ALONE, RunContext
from cl_graft.settings import ExperimentConfig
from cl_graft.settings.presets import (
    GRID_ADAMW_RATES,
    GRID_BATCH_SIZES,
    GRID_LEARNING_RATES,
    PAPER_MOST_SHOTS,
)
from cl_graft.training.dense_run import DenseRun, fine_tune_task
from cl_graft.training.fine_tuning_settings import FineTuning
from cl_graft.training.learnable_task import LearnableTask

if TYPE_CHECKING:
    from cl_graft.data import TextTask

logger = logging.getLogger(__name__)

_Candidate = TypeVar("_Candidate")
_Outcome = TypeVar("_Outcome")


def make_schedule(config: ExperimentConfig, task: TextTask) -> FineTuning:
    """Return the dense schedule of a task, before any choice on dev."""
    dense = config.fine_tuning.of_kind(task.own_kind)
    if not config.training.paper_steps:
        return dense
    classes = max(1, len(task.class_names))
    shots = config.stream.shots or math.ceil(len(task.train) / classes)
    steps = 16 * classes * min(shots, PAPER_MOST_SHOTS)
    return replace(dense, steps=steps)


def input_settings(
    config: ExperimentConfig,
    schedules: Mapping[int, FineTuning],
    *,
    seed: int,
    builds_on: Mapping[int, tuple[str, ...]],
) -> dict[str, Any]:
    """Return the settings of a config as arguments of `StrategyInputs`."""
    return {
        "fine_tuning": schedules,
        "grafting": {
            label: config.grafting.of_task(schedule, seed=seed, builds_on=builds_on.get(label))
            for label, schedule in schedules.items()
        },
        "region_optimizer": config.grafting.optimizer,
        "region_lr": config.grafting.lr,
        "head_lr": config.grafting.head_lr,
        "region_decay": config.grafting.lr_decay,
        "clip": config.loop_clip,
        "eval_batch": config.training.eval_batch,
        "seed": seed,
    }


def list_schedules(config: ExperimentConfig, task: TextTask) -> tuple[FineTuning, ...]:
    """List the schedules of a task among which dev chooses; one if the config has no grid."""
    plain = make_schedule(config, task)
    if not config.training.grid:
        return (plain,)
    rates = GRID_ADAMW_RATES if config.fine_tuning.optimizer == "adamw" else GRID_LEARNING_RATES
    return tuple(
        replace(plain, batch_size=batch_size, lr=lr)
        for batch_size in GRID_BATCH_SIZES
        for lr in rates
    )


def choose(
    task: LearnableTask, candidates: Sequence[FineTuning], *, seed: int, context: RunContext = ALONE
) -> FineTuning:
    """Choose the schedule whose dense run scores best on dev; ties go to the earlier one."""
    if len(candidates) == 1:
        return candidates[0]
    best, chosen = -math.inf, candidates[0]

    def fine_tune(settings: FineTuning) -> DenseRun:
        return fine_tune_task(task, settings, seed=seed, context=context)

    for settings, dense in train_candidates(candidates, fine_tune):
        if dense.dev is not None and dense.dev > best:
            best, chosen = dense.dev, settings
    return chosen


def train_candidates(
    candidates: Iterable[_Candidate], train: Callable[[_Candidate], _Outcome]
) -> Iterator[tuple[_Candidate, _Outcome]]:
    """Train with one candidate after the other, and pass over those that diverge."""
    diverged: DivergedError | None = None
    survived = False
    for candidate in candidates:
        try:
            outcome = train(candidate)
        except DivergedError as error:
            logger.warning("%s; the grid goes on without it", error)
            diverged = error
            continue
        survived = True
        yield candidate, outcome
    if diverged is not None and not survived:
        raise diverged
