"""The time that a config's strategies will take, from steps that are measured on this machine.

Each task of the config is loaded and encoded as a run does it. A few steps of dense training and of
a region's training, a batch of gradients and one of answers, are timed on the real model; the rest
is computed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from cl_graft.grafts.graft import snapshot
from cl_graft.grafts.region import Layout, Region
from cl_graft.lab.experiments.run_setup import (
    apply_fixed_settings,
    check_strategies,
    evaluates_unseen_tasks,
    keep_able_strategies,
    load_stream,
)
from cl_graft.localization import find_localizer
from cl_graft.localization.upper_blocks import restrict
from cl_graft.runtime.devices import pick_device
from cl_graft.runtime.seeding import permutation
from cl_graft.settings import ExperimentConfig
from cl_graft.settings.schedule import make_schedule
from cl_graft.settings.tasks import load_tasks
from cl_graft.strategies import text_model
from cl_graft.strategies.experience_tasks import make_stream_task
from cl_graft.strategies.registry import find_strategy
from cl_graft.training.dense_run import fine_tune_task
from cl_graft.training.fine_tuning_settings import FineTuning
from cl_graft.training.graft_retraining import train_region
from cl_graft.training.learnable_task import LearnableTask

__all__ = ["TaskTimes", "TimeEstimate", "add_up_times", "estimate_time"]

_STEPS = 3
"""Steps that are timed; one before them is not."""


@dataclass(frozen=True)
class TaskTimes:
    """Seconds that were measured on a task, and the counts that they are multiplied by.

    Attributes:
        task: Name of the task.
        schedule: Schedule of its training.
        dense_step: Seconds of a step that trains all weights.
        located_step: Seconds of a step of the dense run from which a region is found, in those
            layers that the region may reach.
        region_step: Seconds of a step that trains a region.
        gradient: Seconds a row of the gradients that a localizer looks at.
        answer: Seconds to answer a row.
        train: Number of training rows.
        dev: Number of dev rows.
        test: Number of test rows.
    """

    task: str
    schedule: FineTuning
    dense_step: float
    located_step: float
    region_step: float
    gradient: float
    answer: float
    train: int
    dev: int
    test: int


@dataclass(frozen=True)
class TimeEstimate:
    """Seconds that a config will take on this machine, one run after the other.

    Attributes:
        strategies: Seconds of a run by strategy. A dense run that several strategies share counts
            with the first of them.
        runs: Runs of each strategy: seeds, times orders of the tasks.
        tasks: Measurements of each task.
    """

    strategies: Mapping[str, float]
    runs: int
    tasks: tuple[TaskTimes, ...]

    @property
    def total(self) -> float:
        """Seconds of all runs."""
        return self.runs * sum(self.strategies.values())


def estimate_time(
    config: ExperimentConfig, *, progress: Callable[[str, int, int], None] | None = None
) -> TimeEstimate:
    """Measure a few steps of each task, and add up what the config's strategies will take.

    Tuning and sweeps are not counted, nor are the first seconds in which a process starts. A step
    of an adapter (LoRA, BitFit) is taken to last as long as one of a region, as both leave out the
    gradients of the weights.

    Args:
        config: The settings.
        progress: Called as (phase, task, tasks).

    Raises:
        InputError: If model or data cannot be used, or a strategy cannot run.
    """
    config = keep_able_strategies(config)
    seed = config.comparison.seeds[0]
    device = pick_device(config.model.device)
    tasks = load_tasks(config.stream, seed=seed)
    check_strategies(config.comparison.strategies, config, tasks)
    loaded, stream = load_stream(config, tasks)
    model = text_model(loaded, stream, seed=seed, one_head=stream.one_head).to(device)
    found: list[TaskTimes] = []
    for label, encoded in enumerate(stream.tasks):
        if progress is not None:
            progress("measuring steps", label, len(stream.tasks))
        task = make_stream_task(model.eval(), stream, label, base="", seed=seed)
        schedule, grafting = make_schedule(config, encoded.task), config.grafting
        inputs = encoded.splits["test"][0]
        batch = inputs[:: max(1, len(inputs) // config.training.eval_batch)]
        batch = batch[: config.training.eval_batch]
        dense_step = located_step = _time_dense_step(task, schedule, seed)
        rows = min(grafting.mask_batch, len(task.train))
        at_once = grafting.of_task(schedule, seed=seed).rows_at_once
        large = replace(schedule, batch_size=rows, micro_batch=at_once)
        reached = restrict(task, grafting)
        if grafting.layers != "all":
            located_step = _time_dense_step(reached, schedule, seed)
        gradient = _time_dense_step(reached, large, seed, steps=1) / rows
        region_step = _time_region_step(reached, schedule, config, seed)
        found.append(
            TaskTimes(
                encoded.task.name,
                schedule,
                dense_step=dense_step,
                located_step=located_step,
                region_step=region_step,
                gradient=gradient,
                answer=_time_answer(task, batch),
                train=len(task.train),
                dev=len(task.dev),
                test=len(inputs),
            )
        )
    return add_up_times(config, found)


def add_up_times(config: ExperimentConfig, tasks: list[TaskTimes]) -> TimeEstimate:
    """Add up what strategies will take, from the seconds that were measured on each task."""
    asked = config.comparison
    shared = False
    seconds: dict[str, float] = {}
    for name in asked.strategies:
        method = find_strategy(name)
        own = apply_fixed_settings(method, config)
        localizer = find_localizer(own.grafting.localizer)
        needs_dense = method.trains == "nothing" or (
            method.trains == "region" and localizer.needs_dense_run
        )
        early = evaluates_unseen_tasks(config, method)
        spent = _answer(tasks) if early != "never" else 0.0  # before the first task is learned
        for place, task in enumerate(tasks):
            schedule = task.schedule
            dev_seconds = min(schedule.evaluations, schedule.steps) * task.dev * task.answer
            if needs_dense and not shared:
                spent += schedule.steps * task.located_step + dev_seconds
            if method.trains == "region":
                if localizer.needs_gradients:
                    rows = own.grafting.mask_steps * min(own.grafting.mask_batch, task.train)
                    spent += rows * task.gradient
                if own.grafting.retrain:
                    spent += schedule.steps * task.region_step + dev_seconds
            elif method.trains != "nothing":
                times = {"task": 1, "seen_tasks": place + 1, "all_tasks": len(tasks)}
                step = task.region_step if method.trains == "per_task" else task.dense_step
                spent += times[method.rows] * schedule.steps * step + dev_seconds
            spent += _answer(tasks if early == "always" else tasks[: place + 1])
        shared = shared or needs_dense
        seconds[name] = spent
    orders = math.factorial(len(tasks)) if asked.orders == "all" else asked.orders
    return TimeEstimate(seconds, len(asked.seeds) * orders, tuple(tasks))


def _answer(tasks: Sequence[TaskTimes]) -> float:
    return sum(task.test * task.answer for task in tasks)


def _time_dense_step(
    task: LearnableTask, schedule: FineTuning, seed: int, *, steps: int = _STEPS
) -> float:
    def train(steps: int) -> None:
        fine_tune_task(task, replace(schedule, steps=steps, evaluations=0), seed=seed)

    return _time_steps(train, steps)


def _time_region_step(
    task: LearnableTask, schedule: FineTuning, config: ExperimentConfig, seed: int
) -> float:
    layout = Layout.of(task.parameters)
    places = permutation(layout.total, seed, "time")
    region = Region.of(layout, places[: config.grafting.coordinates(layout.total)])

    def train(steps: int) -> None:
        own = config.region_schedule(schedule, coordinates=len(region))
        own = replace(own, steps=steps, evaluations=0, lr=1e-4)
        train_region(task, region, own, head=snapshot(task.head), seed=seed)

    return _time_steps(train)


def _time_steps(train: Callable[[int], None], steps: int = _STEPS) -> float:
    """Return the seconds of a step, without those of what stands before and behind all steps."""
    train(1)
    once, more = _seconds(lambda: train(1)), _seconds(lambda: train(1 + steps))
    return max(0.0, more - once) / steps


def _time_answer(task: LearnableTask, rows: torch.Tensor) -> float:
    task.model.eval()
    with torch.no_grad():
        return _seconds(lambda: task.forward(rows.to(task.device)).cpu()) / len(rows)


def _seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started
