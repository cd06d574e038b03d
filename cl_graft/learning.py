"""Learning one task: from data to a region, before the region itself is trained.

The two phases here are those of the paper's App. C.3 that need the base alone: an independent
dense run, and localization on (base, tuned). Both depend only on the model, the data, the
settings and the seed, so their outcome can be cached by a hash of these and shared between
orders, densities and strategies.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from cl_graft.examples import Examples
from cl_graft.graft import copy_, gather, grafted, load_, snapshot
from cl_graft.localization import Problem, Ranking, find_localizer, localize
from cl_graft.randomness import BatchOrder, derive, permutation
from cl_graft.region import Layout, Parameters, Region
from cl_graft.training import FineTuning, fine_tune

__all__ = [
    "Cache",
    "GraftingSettings",
    "Located",
    "TaskProblem",
    "fine_tune_task",
    "locate_task",
]

logger = logging.getLogger(__name__)

Progress = Callable[[str, int, int], None]
"""Called as (phase, step, steps) while a phase runs."""


@dataclass(frozen=True)
class GraftingSettings:
    """How a task becomes a graft.

    Attributes:
        density: Share of the graftable coordinates in a task's region, in (0, 1], or ``"auto"``
            for the smallest of `budgets` whose graft keeps `auto_share` of the dense dev score.
        localizer: A name in `cl_graft.localization.LOCALIZERS`.
        fine_tuning: The dense run.
        mask_steps: Gradient batches that the localizer looks at.
        mask_batch: Rows of such a batch.
        micro_batch: Rows computed at a time.
        refill: Rank among the coordinates that no earlier task owns, so that late tasks keep
            their whole budget; off, a region loses what earlier tasks own, as in the paper.
        region_start: Where region training starts: ``"base"`` (re-training, the reading that
            fits the paper's Table 4) or ``"tuned"`` (the values of the independent run).
        look_every: Steps between looks at dev while the region trains; the best values are kept,
            of equal ones the later, as in the dense run. 0 keeps the last.
        mode: ``"prefix"`` or ``"isolated"``.
        auto_share: For ``density="auto"``, in (0, 1].
        budgets: The densities that ``"auto"`` tries, ascending.
        keep_standalone: Keep the whole γ_n with the values of the independent run, too.
        seed: Every random choice is a function of it.
    """

    density: float | Literal["auto"] = 0.002
    localizer: str = "learned_mask"
    fine_tuning: FineTuning = field(default_factory=FineTuning)
    mask_steps: int = 12
    mask_batch: int = 128
    micro_batch: int = 32
    refill: bool = True
    region_start: Literal["base", "tuned"] = "base"
    look_every: int = 0
    mode: Literal["prefix", "isolated"] = "prefix"
    auto_share: float = 0.98
    budgets: tuple[float, ...] = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
    keep_standalone: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if self.density != "auto" and not 0 < self.density <= 1:
            raise ValueError(f"density must be in (0, 1] or 'auto', got {self.density}")
        if not 0 < self.auto_share <= 1:
            raise ValueError(f"auto_share must be in (0, 1], got {self.auto_share}")
        if self.mask_steps < 1 or self.mask_batch < 1 or self.micro_batch < 1:
            raise ValueError("mask_steps, mask_batch and micro_batch must be at least 1")
        find_localizer(self.localizer)

    def coordinates(self, total: int) -> int:
        """Return the largest budget k among `total` coordinates; at least 1."""
        density = max(self.budgets) if self.density == "auto" else self.density
        return max(1, round(density * total))


class Cache(Protocol):
    """Keeps outcomes by the content that determines them."""

    def get(self, key: str) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Return what was put under a key, or None."""
        ...

    def put(self, key: str, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Keep tensors and JSON facts under a key."""
        ...


@dataclass(frozen=True, eq=False)
class TaskProblem:
    """One task to learn on a model that stands at its base.

    Attributes:
        model: The module that holds the parameters under these names and that `forward` runs.
        parameters: The graftable parameters, by name.
        head: The task head's parameters, by name; empty for prompts.
        forward: Inputs to logits of this task.
        criterion: (logits, targets) to the mean loss.
        score: (logits, targets) to the dev score, higher is better.
        train: Training rows.
        dev: Rows for choosing checkpoints, masks and budgets.
        device: Where batches go.
        content: What determines the outcome beside the settings: model and data fingerprints.
    """

    model: nn.Module
    parameters: Mapping[str, nn.Parameter]
    head: Mapping[str, nn.Parameter]
    forward: Callable[[Tensor], Tensor]
    criterion: Callable[[Tensor, Tensor], Tensor]
    score: Callable[[Tensor, Tensor], float]
    train: Examples
    dev: Examples
    device: torch.device
    content: str

    def dev_score(self) -> float:
        """Score the model as it is now on dev."""
        return self._score(self.dev, range(len(self.dev)))

    def train_score(self, *, rows: int, seed: int) -> float:
        """Score the model as it is now on the first `rows` shuffled training rows."""
        order = permutation(len(self.train), seed, "train score").tolist()
        return self._score(self.train, order[:rows])

    def loss(self, places: Sequence[int]) -> Tensor:
        """Compute the mean loss of some training rows."""
        inputs, targets = self.train.batch(places)
        return self.criterion(self.forward(inputs.to(self.device)), targets.to(self.device))

    def _score(self, examples: Examples, places: Sequence[int]) -> float:
        logits, targets = [], []
        with torch.no_grad():
            for first in range(0, len(places), 64):
                inputs, target = examples.batch(places[first : first + 64])
                logits.append(self.forward(inputs.to(self.device)).float().cpu())
                targets.append(target)
        return self.score(torch.cat(logits), torch.cat(targets))


@dataclass(frozen=True, eq=False)
class Located:
    """Where a task lives, and what its independent run found there.

    Attributes:
        claimed: The region γ_n.
        tuned: The independent run's graftable parameters.
        head: The independent run's head.
        dense_dev: Its score on dev.
        graft_dev: The score on dev of base + tuned values on the region; None if not measured.
        seconds: Wall time by phase; near 0 where the cache answered.
    """

    claimed: Region
    tuned: Parameters
    head: Parameters
    dense_dev: float | None
    graft_dev: float | None
    seconds: dict[str, float]


def fine_tune_task(
    task: TaskProblem,
    settings: FineTuning,
    *,
    seed: int,
    cache: Cache | None = None,
    progress: Progress | None = None,
) -> tuple[dict[str, Tensor], dict[str, Tensor], float | None]:
    """Run the independent dense fine-tuning of a task; the model is put back to its base.

    Returns:
        The tuned graftable parameters, the tuned head, and the score on dev.
    """
    trained = {**task.parameters, **task.head}
    before = snapshot(trained)
    phase_seed = derive(seed, task.content, "dense")
    key = _key("dense", task.content, asdict(settings), seed)
    # A head's own names hold the task's label, which depends on the order of the stream.
    shelf = {name: name for name in task.parameters}
    shelf |= {name: f"head.{place}" for place, name in enumerate(task.head)}
    found = cache.get(key) if cache is not None else None
    if found is None:
        order = BatchOrder(len(task.train), settings.batch_size, phase_seed, "batches")
        report = progress or _silent
        try:
            outcome = fine_tune(
                task.model,
                trained,
                loss=lambda step: task.loss(order(step)),
                settings=settings,
                seed=phase_seed,
                dev_score=task.dev_score,
                on_step=lambda step, _: report("dense", step, settings.steps),
            )
        finally:
            copy_(trained, before)
        tensors, dev = outcome.tensors, outcome.dev
        if cache is not None:
            kept = {shelf[name]: tensor for name, tensor in tensors.items()}
            cache.put(key, kept, {"dev": dev, "step": outcome.step})
    else:
        device = next(iter(trained.values())).device
        tensors = {name: found[0][shelf[name]].to(device) for name in trained}
        dev = found[1]["dev"]
    body = {name: tensors[name] for name in task.parameters}
    return body, {name: tensors[name] for name in task.head}, dev


def locate_task(
    task: TaskProblem,
    settings: GraftingSettings,
    *,
    owned: Region,
    cache: Cache | None = None,
    progress: Progress | None = None,
) -> Located:
    """Find the region of a task on a model at its base, which is put back there.

    Args:
        task: The task.
        settings: How.
        owned: Coordinates of earlier tasks, passed over when `settings.refill` is on.
        cache: Answers what was computed before.
        progress: Called while phases run.
    """
    base = snapshot(task.parameters)
    layout = Layout.of(base)
    started = time.perf_counter()
    tuned, head, dense_dev = fine_tune_task(
        task, settings.fine_tuning, seed=settings.seed, cache=cache, progress=progress
    )
    seconds = {"dense": time.perf_counter() - started}
    started = time.perf_counter()
    without = owned if settings.refill and settings.mode == "prefix" else None
    taken = len(without) if without is not None else 0
    k = min(settings.coordinates(layout.total), layout.total - taken)
    if k < 1:
        empty = Region.empty(layout)
        return Located(empty, tuned, head, dense_dev, None, seconds | {"localize": 0.0})
    head_before = snapshot(task.head)
    flags = {name: p.requires_grad for name, p in task.parameters.items()}
    task.model.eval()
    try:
        copy_(task.head, head)
        for parameter in task.parameters.values():
            parameter.requires_grad_(True)
        problem = _problem(task, settings, base, tuned, progress)
        ranking = _ranking(problem, task, settings, k=k, taken=taken, cache=cache)
        claimed, graft_dev = _budget(problem, ranking, settings, k, without, dense_dev)
    finally:
        load_(task.model, base)
        copy_(task.head, head_before)
        for name, parameter in task.parameters.items():
            parameter.requires_grad_(flags[name])
    seconds["localize"] = time.perf_counter() - started
    return Located(claimed, tuned, head, dense_dev, graft_dev, seconds)


def _problem(
    task: TaskProblem,
    settings: GraftingSettings,
    base: Parameters,
    tuned: Parameters,
    progress: Progress | None,
) -> Problem:
    seed = derive(settings.seed, task.content, "mask")
    rows = min(settings.mask_batch, len(task.train))
    order = BatchOrder(len(task.train), rows, seed, "batches")
    report = progress or _silent

    def losses(step: int) -> list[Callable[[], Tensor]]:
        report("localize", step + 1, settings.mask_steps)
        places = order(step)
        cuts = range(0, len(places), settings.micro_batch)
        return [lambda cut=cut: task.loss(places[cut : cut + settings.micro_batch]) for cut in cuts]

    return Problem(
        model=task.model,
        parameters=task.parameters,
        base=base,
        tuned=tuned,
        losses=losses,
        dev_score=task.dev_score,
        train_score=lambda: task.train_score(rows=1024, seed=seed),
        seed=seed,
    )


def _ranking(
    problem: Problem,
    task: TaskProblem,
    settings: GraftingSettings,
    *,
    k: int,
    taken: int,
    cache: Cache | None,
) -> Ranking:
    recipe = {
        "localizer": settings.localizer,
        "k": k,
        "steps": settings.mask_steps,
        "batch": settings.mask_batch,
        "micro": settings.micro_batch,
        "fine_tuning": asdict(settings.fine_tuning),
    }
    total = problem.layout.total
    depth = min(total, max(20 * k, total // 20) + taken)
    key = _key("ranking", task.content, recipe, settings.seed)
    found = cache.get(key) if cache is not None else None
    if found is not None and found[0]["order"].numel() >= depth:
        return Ranking(problem.layout, found[0]["order"].to(torch.int64))
    ranking = localize(problem, settings.localizer, k=k, steps=settings.mask_steps, depth=depth)
    if cache is not None:
        cache.put(key, {"order": ranking.order}, {})
    return ranking


def _budget(
    problem: Problem,
    ranking: Ranking,
    settings: GraftingSettings,
    k: int,
    without: Region | None,
    dense_dev: float | None,
) -> tuple[Region, float | None]:
    def measure(size: int) -> tuple[Region, float]:
        region = ranking.top(size, without=without)
        with grafted(problem.model, gather(problem.tuned, region)):
            return region, problem.dev_score()

    if settings.density != "auto":
        return measure(k)
    wanted = settings.auto_share * (dense_dev or 0.0)
    total = problem.layout.total
    sizes = sorted({min(k, max(1, round(density * total))) for density in settings.budgets})
    tried = (measure(size) for size in sizes)
    for region, score in tried:
        if score >= wanted:
            return region, score
    return measure(k)


def _key(phase: str, content: str, recipe: Mapping[str, Any], seed: int) -> str:
    text = json.dumps([phase, content, recipe, seed], sort_keys=True)
    return f"{phase}-{hashlib.sha256(text.encode()).hexdigest()[:40]}"


def _silent(phase: str, step: int, steps: int) -> None:
    del phase, step, steps
