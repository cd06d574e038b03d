"""The independent dense run of a task, which orders, densities and strategies share by a cache."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from torch import Tensor

from cl_graft.grafts.graft import copy_, snapshot
from cl_graft.runtime.checkpoints import Checkpoint, State
from cl_graft.runtime.error_context import in_phase
from cl_graft.runtime.run_context import ALONE, RunContext, cache_key
from cl_graft.runtime.seeding import derive
from cl_graft.training.fine_tuning_settings import FineTuning
from cl_graft.training.learnable_task import LearnableTask, Passes
from cl_graft.training.rate_schedule import with_rate_schedule


@dataclass(frozen=True, eq=False)
class DenseRun:
    """The outcome of a task's independent dense run.

    Attributes:
        tuned: Values of the graftable parameters by name; empty where the head alone was fitted.
        head: Values of the task's head by name.
        dev: Score on dev; None if dev was not evaluated.
        passes: Rows that it takes; they count also where the cache had the outcome.
        path: Σ −g·Δθ over its steps, by graftable parameter; None if it was not summed up.
    """

    tuned: dict[str, Tensor]
    head: dict[str, Tensor]
    dev: float | None
    passes: Passes
    path: dict[str, Tensor] | None = None


def fine_tune_task(
    task: LearnableTask,
    settings: FineTuning,
    *,
    seed: int,
    path: bool = False,
    context: RunContext = ALONE,
) -> DenseRun:
    """Fine-tune a task densely and independently; the model is put back to its base.

    `path` says whether to sum up `DenseRun.path`.
    """
    settings = with_rate_schedule(settings)
    trained = {**task.parameters, **task.head}
    before = snapshot(trained)
    phase_seed = derive(seed, task.content, "dense")
    keys = {
        phase: cache_key(phase, task.identity, asdict(settings), seed)
        for phase in ("dense", *(["path"] if path else []))
    }
    cached = {phase: context.cache.get(key) for phase, key in keys.items()}
    answers = {phase: answer for phase, answer in cached.items() if answer is not None}
    points = PhasePoints("dense", context.measure)
    if len(answers) < len(keys):

        def after_step(step: int, loss: float) -> None:
            points.add("Loss", step, loss)
            context.progress("dense", step, settings.steps)

        # A run that sums up its path has a checkpoint of its own.
        checkpoint = context.checkpoints.at(keys["path" if path else "dense"])
        try:
            with in_phase("dense fine-tuning"):
                outcome = task.fine_tune(
                    trained,
                    settings,
                    seed=phase_seed,
                    path=path,
                    anchor={name: before[name] for name in task.parameters},
                    on_step=after_step,
                    on_evaluation=partial(points.add, "DevScore"),
                    checkpoint=points.beside(checkpoint),
                )
        finally:
            copy_(trained, before)
        tensors, dev, gathered = outcome.tensors, outcome.dev, outcome.path
        values = points.join({"dev": dev, "step": outcome.step})
        context.cache.put(keys["dense"], task.to_cache(tensors), values)
        if path:
            body = {name: outcome.path[name] for name in task.parameters}
            context.cache.put(keys["path"], body, {})
    else:
        tensors = task.from_cache(answers["dense"][0], trained)
        dev = points.replay(dict(answers["dense"][1]))["dev"]
        gathered = task.from_cache(answers["path"][0], task.parameters) if path else {}
    return DenseRun(
        tuned={name: tensors[name] for name in task.parameters},
        head={name: tensors[name] for name in task.head},
        dev=dev,
        passes=count_dense_passes(task, settings),
        path={name: gathered[name] for name in task.parameters} if path else None,
    )


def count_dense_passes(task: LearnableTask, settings: FineTuning) -> Passes:
    """Return how many rows a dense run of a task takes."""
    evaluations = min(settings.evaluations, settings.steps)
    return Passes(settings.steps * settings.batch_size, evaluations * len(task.dev))


_KEY = "points"


class PhasePoints:
    """Report the losses and dev scores of a phase, and keep them."""

    def __init__(self, phase: str, measure: Callable[[str, str, int, float], None]) -> None:
        self._phase = phase
        self._measure = measure
        self._points: list[tuple[str, int, float]] = []

    def add(self, name: str, step: int, value: float) -> None:
        """Report and keep a point: ``"Loss"`` or ``"DevScore"`` at a step, from 1."""
        self._points.append((name, step, value))
        self._measure(self._phase, name, step, value)

    def join(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return values for a checkpoint or a cache with the points beside them."""
        return {**values, _KEY: [list(point) for point in self._points]}

    def replay(self, values: dict[str, Any]) -> dict[str, Any]:
        """Report the points in what `join` returned, and return the values without them."""
        points: Iterable[tuple[str, int, float]] = values[_KEY]
        for name, step, value in points:
            self.add(name, step, value)
        return {name: value for name, value in values.items() if name != _KEY}

    def beside(self, checkpoint: Checkpoint) -> Checkpoint:
        """Return a checkpoint that keeps the points, too, and reports them when it is loaded."""
        return SavedBeside(checkpoint, self.join, self.replay)


@dataclass(frozen=True, eq=False)
class SavedBeside:
    """A checkpoint whose values `add` completes before they are saved, and `take` reads again."""

    inner: Checkpoint
    add: Callable[[dict[str, Any]], dict[str, Any]]
    take: Callable[[dict[str, Any]], dict[str, Any]]

    def load(self) -> State | None:
        """Return the state of `inner`."""
        saved = self.inner.load()
        return None if saved is None else (saved[0], self.take(dict(saved[1])))

    def offer(self, state: Callable[[], State], *, last: bool = False) -> None:
        """Offer a state to `inner`."""

        def complete() -> State:
            tensors, values = state()
            return tensors, self.add(dict(values))

        self.inner.offer(complete, last=last)
