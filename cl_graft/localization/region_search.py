"""Locating a task: from data to a region, before the region itself is trained.

Most localizers compare the base with its densely fine-tuned twin, so an independent dense run comes
first (Panigrahi et al., 2023, App. C.3, https://arxiv.org/abs/2302.06600). One that looks at the
base alone does without: the task's head is fitted to the base's features instead, which is all
but free, and both localization and region training start from it. Every phase depends only on the
model, the data, the settings and the seed, so its outcome can be cached by a hash of these.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from cl_graft.errors import DivergedError
from cl_graft.grafts.graft import gather, grafted, snapshot
from cl_graft.grafts.model_state import holding, only_training
from cl_graft.grafts.region import Layout, Parameters, Region
from cl_graft.localization import Problem, Ranking, find_localizer, localize
from cl_graft.localization.settings import GraftingSettings
from cl_graft.localization.task_gradients import Count, pose, scaled
from cl_graft.runtime.cache import Cache, cache_key
from cl_graft.runtime.checkpoints import Checkpoint, Checkpoints, State
from cl_graft.runtime.error_context import in_phase
from cl_graft.runtime.seeding import derive
from cl_graft.training.dense_run import Measure, Progress, fine_tune_task, silent
from cl_graft.training.dropout import without_dropout
from cl_graft.training.learnable_task import LearnableTask
from cl_graft.training.linear_probe import warm_up_head
from cl_graft.training.passes import Passes

__all__ = ["Located", "locate_task"]


@dataclass(frozen=True, eq=False)
class Located:
    """Where a task lives, and what was found on the way there.

    Attributes:
        claimed: The region γ_n.
        tuned: The independent run's graftable parameters; None without such a run.
        head: The independent run's head, or the one fitted to the base.
        dense_dev: The independent run's score on dev; None without one.
        graft_dev: The score on dev of base + tuned values on the region; None if not measured.
        seconds: Wall time by phase; near 0 where the cache answered.
        passes: Rows by phase, also where the cache answered.
    """

    claimed: Region
    tuned: Parameters | None
    head: Parameters
    dense_dev: float | None
    graft_dev: float | None
    seconds: dict[str, float]
    passes: dict[str, Passes]


def locate_task(
    task: LearnableTask,
    settings: GraftingSettings,
    *,
    owned: Region,
    cache: Cache | None = None,
    checkpoints: Checkpoints | None = None,
    progress: Progress | None = None,
    measure: Measure | None = None,
) -> Located:
    """Find the region of a task on a model at its base, which is put back there.

    Args:
        task: The task.
        settings: How.
        owned: Coordinates of earlier tasks, passed over when `settings.refill` is on.
        cache: Answers what was computed before.
        checkpoints: Where a phase that was interrupted is taken up, and kept on the way.
        progress: Called while phases run.
        measure: Called with losses and dev scores of phases.
    """
    layout = Layout.of(task.parameters)
    start = _start(task, settings, cache, checkpoints, progress or silent, measure)
    started = time.perf_counter()
    without = owned if settings.refill and settings.mode == "prefix" else None
    taken = len(without) if without is not None else 0
    choice = _choice(task, settings)
    left = layout.total - taken if choice is None else len(choice - owned if taken else choice)
    k = min(settings.coordinates(layout.total), left)
    if k < 1:
        return start.at(Region.empty(layout), None, 0.0, Passes())
    count = Count()
    task.model.eval()
    # Gradient checkpointing acts in train mode alone.
    mode = without_dropout(task.model) if task.recomputes else nullcontext()
    alone = only_training(task.model, task.parameters.values())
    with (
        holding(task.head, start.head),
        alone,
        mode,
        in_phase("localization"),
        _named(settings.localizer),
    ):
        problem = pose(
            task,
            settings,
            tuned=start.tuned or {},
            path=start.path or {},
            count=count,
            progress=progress,
            measure=measure,
        )
        ranking = _ranking(
            problem,
            task,
            settings,
            count,
            k=k,
            taken=taken,
            most=layout.total if choice is None else len(choice),
            cache=cache,
            checkpoints=checkpoints,
        )
        claimed, graft_dev = _budget(problem, ranking, settings, k, without, start)
    if measure is not None and graft_dev is not None:
        measure("localize", "DevScore", settings.mask_steps, graft_dev)
    return start.at(claimed, graft_dev, time.perf_counter() - started, count.passes)


@dataclass(frozen=True, eq=False)
class _Start:
    """What localization starts from: the outcome of the phase before it."""

    phase: str
    tuned: Parameters | None
    head: dict[str, Tensor]
    dev: float | None
    path: Parameters | None
    seconds: float
    passes: Passes

    def at(
        self, claimed: Region, graft_dev: float | None, seconds: float, passes: Passes
    ) -> Located:
        return Located(
            claimed=claimed,
            tuned=self.tuned,
            head=self.head,
            dense_dev=self.dev,
            graft_dev=graft_dev,
            seconds={self.phase: self.seconds, "localize": seconds},
            passes={self.phase: self.passes, "localize": passes},
        )


@contextmanager
def _named(localizer: str) -> Iterator[None]:
    """Let what diverges while a region is sought name the localizer."""
    try:
        yield
    except DivergedError as error:
        raise DivergedError(f"localization by {localizer}: {error}") from error


class _Counted:
    """A localizer's checkpoint, which keeps the count of rows beside the localizer's state."""

    def __init__(self, inner: Checkpoint, count: Count) -> None:
        self._inner = inner
        self._count = count

    def load(self) -> State | None:
        left = self._inner.load()
        if left is not None:
            self._count.passes = Passes(**left[1]["passes"])
        return left

    def offer(self, state: Callable[[], State], *, last: bool = False) -> None:
        def counted() -> State:
            tensors, values = state()
            return tensors, {**values, "passes": asdict(self._count.passes)}

        self._inner.offer(counted, last=last)


def _start(
    task: LearnableTask,
    settings: GraftingSettings,
    cache: Cache | None,
    checkpoints: Checkpoints | None,
    report: Progress,
    measure: Measure | None,
) -> _Start:
    started = time.perf_counter()
    localizer = find_localizer(settings.localizer)
    if localizer.needs_tuned:
        dense = fine_tune_task(
            task,
            settings.fine_tuning,
            seed=settings.seed,
            path=localizer.needs_path,
            cache=cache,
            checkpoints=checkpoints,
            progress=report,
            measure=measure,
        )
        seconds = time.perf_counter() - started
        return _Start(
            "dense", dense.tuned, dense.head, dense.dev, dense.path, seconds, dense.passes
        )
    if not settings.warmup_rows or not task.head or task.head_module is None:
        return _Start("warm-up", None, snapshot(task.head), None, None, 0.0, Passes())
    with in_phase("head warm-up"):
        head = _warm_head(task, settings, cache)
    report("warm-up", 1, 1)
    rows = min(settings.warmup_rows, len(task.train))
    seconds = time.perf_counter() - started
    return _Start("warm-up", None, head, None, None, seconds, Passes(forward=rows))


def _warm_head(
    task: LearnableTask, settings: GraftingSettings, cache: Cache | None
) -> dict[str, Tensor]:
    key = cache_key("warmup", task.identity, _warmup(settings), settings.seed)
    found = cache.get(key) if cache is not None else None
    if found is not None:
        return task.from_shelf(found[0], task.head)
    seed = derive(settings.seed, task.content, "warm-up")
    head = warm_up_head(task, rows=settings.warmup_rows, seed=seed)
    if cache is not None:
        cache.put(key, task.shelved(head), {})
    return head


def _choice(task: LearnableTask, settings: GraftingSettings) -> Region | None:
    """Return the coordinates that the localizer may choose; None means all."""
    among = find_localizer(settings.localizer).among
    return among(task.model, task.parameters) if among is not None else None


def _ranking(
    problem: Problem,
    task: LearnableTask,
    settings: GraftingSettings,
    count: Count,
    *,
    k: int,
    taken: int,
    most: int,
    cache: Cache | None,
    checkpoints: Checkpoints | None,
) -> Ranking:
    total = problem.layout.total
    candidates = settings.candidates(total, k=k, owned=taken)
    recipe = {
        "localizer": settings.localizer,
        "k": k,
        "steps": settings.mask_steps,
        "batch": settings.mask_batch,
        "micro": settings.micro_batch,
        "candidates": candidates,
        "start": asdict(settings.fine_tuning) if problem.tuned else _warmup(settings),
    }
    depth = min(most, max(20 * k, total // 20) + taken)
    if candidates is not None:
        depth = min(depth, candidates)
    key = cache_key("ranking", task.identity, recipe, settings.seed)
    found = cache.get(key) if cache is not None else None
    if found is not None and found[0]["order"].numel() >= min(k + taken, most):
        count.passes += Passes(**found[1])
        return Ranking(problem.layout, found[0]["order"].to(torch.int64))
    problem = scaled(problem, task, settings, count=count)
    if checkpoints is not None:
        problem = replace(problem, checkpoint=_Counted(checkpoints.at(key), count))
    ranking = localize(
        problem,
        settings.localizer,
        k=k,
        steps=settings.mask_steps,
        depth=depth,
        candidates=candidates,
    )
    if cache is not None:
        cache.put(key, {"order": ranking.order}, asdict(count.passes))
    return ranking


def _budget(
    problem: Problem,
    ranking: Ranking,
    settings: GraftingSettings,
    k: int,
    without: Region | None,
    start: _Start,
) -> tuple[Region, float | None]:
    if start.tuned is None:
        return ranking.top(k, without=without), None

    def measure(size: int) -> tuple[Region, float]:
        region = ranking.top(size, without=without)
        with grafted(problem.model, gather(problem.tuned, region)):
            return region, problem.dev_score()

    if settings.density == "auto":
        wanted = settings.auto_share * (start.dev or 0.0)
        total = problem.layout.total
        sizes = sorted({min(k, max(1, round(density * total))) for density in settings.budgets})
        for region, score in (measure(size) for size in sizes):
            if score >= wanted:
                return region, score
    return measure(k)


def _warmup(settings: GraftingSettings) -> Mapping[str, Any]:
    return {"rows": settings.warmup_rows}
