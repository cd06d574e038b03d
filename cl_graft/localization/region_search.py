"""The search for a task's region: dense run, ranking, budget.

For a localizer that looks at the base alone, localization and region training start from the
task's first head.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial

from cl_graft.errors import DivergedError
from cl_graft.grafts.graft import gather, grafted, snapshot
from cl_graft.grafts.hashing import hash_tensors
from cl_graft.grafts.model_state import replace_parameters
from cl_graft.grafts.region import Layout, Region
from cl_graft.localization.grafting_settings import GraftingSettings
from cl_graft.localization.inputs_of_task import RowCounter, inputs_of_task, localizer_seed
from cl_graft.localization.ranking import Ranking, localize
from cl_graft.localization.reach import Reach, find_reach
from cl_graft.localization.registry import Localizer, find_localizer
from cl_graft.runtime.error_context import in_phase
from cl_graft.runtime.run_context import ALONE, NO_CACHE, RunContext, cache_key
from cl_graft.training.dense_run import DenseRun, PhasePoints, fine_tune_task
from cl_graft.training.learnable_task import LearnableTask, Passes
from cl_graft.training.linear_probe import check_head_fit


@dataclass(frozen=True, eq=False)
class FoundRegion:
    """The region of a task, and what was computed to find it.

    Attributes:
        region: Region γ_n.
        localizer: Name of the localizer.
        dense: Dense run; where the localizer needs none, the head alone.
        graft_dev: Score on dev of the base with the tuned values on the region; None without a
            dense run that was scored there.
        seconds: Wall time in seconds by phase; near 0 where the cache had the outcome.
        passes: Rows that the phases take; they count also where the cache had the outcome.
        seed: Seed of the order that the region is the first part of; None if it is not drawn.
    """

    region: Region
    localizer: str
    dense: DenseRun
    graft_dev: float | None
    seconds: dict[str, float]
    passes: dict[str, Passes]
    seed: int | None = None


def find_region(
    task: LearnableTask,
    settings: GraftingSettings,
    *,
    owned: Region | None = None,
    dense: DenseRun | None = None,
    context: RunContext = ALONE,
) -> FoundRegion:
    """Find the region of a task.

    Args:
        task: The task, on a model at its base, which is put back there.
        settings: Density, localizer and dense run.
        owned: Coordinates of earlier tasks, passed over where `settings.avoid_owned` says so; None
            means none.
        dense: The dense run, if it was made already; None makes one where the localizer needs it.
        context: Cache, checkpoints and callbacks of the run.

    Raises:
        DivergedError: If a loss or a weight becomes NaN or infinite.
        InputError: If the model has not the blocks or modules that the settings name, or the
            localizer can choose no coordinate of it.
        ValueError: If a head is to be fitted that cannot be fitted alone.
    """
    started = time.perf_counter()
    search = _Search(task, settings, context)
    localizer = search.localizer
    if not settings.retrain and settings.head_refit_rows:
        check_head_fit(task)
    reach = search.reach
    if dense is None and localizer.needs_dense_run:
        dense = fine_tune_task(
            task,
            settings.fine_tuning,
            seed=settings.seed,
            path=localizer.needs_path,
            context=context,
        )
    elif dense is None:
        dense = DenseRun({}, snapshot(task.head), None, Passes())
    ran = ["dense"] if dense.tuned else []
    seconds = dict.fromkeys(ran, time.perf_counter() - started)
    started = time.perf_counter()
    layout = Layout.of(task.parameters)
    passed_over = Region.empty(layout)
    if owned is not None and settings.avoid_owned and settings.mode == "prefix":
        passed_over = owned
    budget = settings.coordinates(layout.total)
    counts = reach.divide(budget, owned=passed_over)
    k, beside = sum(counts), reach.count_beside(counts, owned=passed_over)
    region, graft_dev = Region.empty(layout), None
    if k:
        # A deeper ranking serves other densities from the cache, where computing one takes long.
        deep = max(20 * k, layout.total // 20) if localizer.needs_gradients else k
        ranking = search.rank(dense, k=k, depth=deep + beside, min_depth=k + beside, owned=beside)
        with _name_localizer(localizer.name):
            region, graft_dev = search.cut(ranking, dense, k=budget, without=passed_over)
    if graft_dev is not None:
        context.measure("localize", "DevScore", settings.mask_steps, graft_dev)
    return FoundRegion(
        region=region,
        localizer=localizer.name,
        dense=dense,
        graft_dev=graft_dev,
        seconds={**seconds, "localize": time.perf_counter() - started},
        passes={**dict.fromkeys(ran, dense.passes), "localize": search.counter.passes},
        seed=localizer_seed(task, settings) if localizer.stored_as == "seed" else None,
    )


def rank_task(
    task: LearnableTask,
    settings: GraftingSettings,
    dense: DenseRun,
    *,
    k: int,
    depth: int | None = None,
    counter: RowCounter | None = None,
    context: RunContext = ALONE,
) -> Ranking:
    """Rank the coordinates of a task, from a dense run that was made already.

    Args:
        task: The task, on a model at its base, which is put back there.
        settings: Localizer, gradient batches, candidates and seed.
        dense: The dense run, or the head alone.
        k: Budget that the ranking is learned for; smaller and larger ones can be cut from it.
        depth: Number of coordinates to rank; None means all that may be chosen.
        counter: Counter of the rows.
        context: Cache, checkpoints and callbacks of the run.
    """
    search = _Search(task, settings, context, counter or RowCounter())
    return search.rank(dense, k=k, depth=depth, min_depth=depth)


@dataclass(frozen=True, eq=False)
class _Search:
    """The ranking of a task's coordinates and the cut at the budget, which share these."""

    task: LearnableTask
    settings: GraftingSettings
    context: RunContext
    counter: RowCounter = field(default_factory=RowCounter)

    @cached_property
    def localizer(self) -> Localizer:
        return find_localizer(self.settings.localizer)

    @cached_property
    def reach(self) -> Reach:
        return find_reach(self.task.model, self.task.parameters, self.settings)

    def rank(
        self, dense: DenseRun, *, k: int, depth: int | None, min_depth: int | None, owned: int = 0
    ) -> Ranking:
        """Rank `depth` coordinates; a cached ranking serves if it has `min_depth` of them."""
        settings, localizer, counter = self.settings, self.localizer, self.counter
        layout, most = self.reach.layout, self.reach.total
        depth = most if depth is None else min(depth, most)
        min_depth = depth if min_depth is None else min(min_depth, most)
        candidates = settings.candidates(layout.total, k=k, owned=owned)
        if candidates is not None:
            depth, min_depth = min(depth, candidates), min(min_depth, candidates)
        # Parameters out of reach are not moved.
        reached = self.reach.parameters
        whole = len(reached) == len(self.task.parameters)
        part = self.task if whole else replace(self.task, parameters=reached)
        key = self._make_key(part, dense, k=k, candidates=candidates)
        # Code from outside may change, and what takes no gradients is as fast as a look-up.
        is_ours = getattr(localizer.score, "__module__", "").startswith("cl_graft.")
        cache = self.context.cache if is_ours and localizer.needs_gradients else NO_CACHE
        points = PhasePoints("localize", self.context.measure)
        cached = cache.get(key)
        if cached is not None and cached[0]["order"].numel() >= min_depth:
            counter.passes += Passes(**points.replay(dict(cached[1])))
            return Ranking(layout, cached[0]["order"])
        checkpoint = counter.beside(self.context.checkpoints.at(key))
        with (
            _name_localizer(localizer.name),
            inputs_of_task(
                part,
                settings,
                dense,
                counter=counter,
                checkpoint=points.beside(checkpoint),
                progress=self.context.progress,
                on_loss=partial(points.add, "Loss"),
            ) as inputs,
        ):
            ranking = localize(
                inputs,
                localizer,
                k=k,
                steps=settings.mask_steps,
                depth=depth,
                candidates=candidates,
                parts=self.reach.parts,
            ).within(layout)
        cache.put(key, {"order": ranking.order}, points.join(asdict(counter.passes)))
        return ranking

    def _make_key(
        self, part: LearnableTask, dense: DenseRun, *, k: int, candidates: int | None
    ) -> str:
        """Return the cache key of a ranking, which names all that the ranking depends on."""
        task, settings = self.task, self.settings
        recipe = {
            "localizer": self.localizer.name,
            "k": k,
            "steps": settings.mask_steps,
            "batch": settings.mask_batch,
            "micro": settings.rows_at_once,
            "candidates": candidates,
            "start": hash_tensors({**dense.tuned, **task.to_cache(dense.head)}),
        }
        if part is not task:
            recipe["parameters"] = list(part.parameters)
        if len(self.reach.parts) > 1:
            recipe["shares"] = [[list(names), share] for names, share in self.reach.parts]
        return cache_key("ranking", task.identity, recipe, settings.seed)

    def cut(
        self, ranking: Ranking, dense: DenseRun, *, k: int, without: Region
    ) -> tuple[Region, float | None]:
        """Cut the region from a ranking; after a scored dense run, score its graft on dev."""
        task, region = self.task, self.reach.cut(ranking, k, without=without)
        if not dense.tuned or dense.dev is None:
            return region, None
        task.model.eval()
        self.counter.passes += Passes(forward=len(task.dev))
        with (
            replace_parameters(task.head, dense.head),
            grafted(task.model, gather(dense.tuned, region)),
        ):
            return region, task.dev_score()


@contextmanager
def _name_localizer(localizer: str) -> Iterator[None]:
    """Let errors in a `with` block name the phase and the localizer."""
    with in_phase("localization"):
        try:
            yield
        except DivergedError as error:
            raise DivergedError(f"localization by {localizer}: {error}") from error
