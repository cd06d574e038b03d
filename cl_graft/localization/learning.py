"""Learning one task: what it is, how it becomes a graft, and its independent dense run.

The dense run depends only on the model, the data, the settings and the seed, so its outcome can be
cached by a hash of these and shared between orders, densities, localizers and strategies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from cl_graft.errors import InputError
from cl_graft.grafts.graft import copy_, snapshot
from cl_graft.localization import find_localizer
from cl_graft.runtime.cache import Cache, cache_key
from cl_graft.runtime.checkpoints import NOWHERE, Checkpoints
from cl_graft.runtime.error_context import in_phase
from cl_graft.runtime.seeding import BatchOrder, derive, permutation
from cl_graft.training.examples import Examples, compute_logits
from cl_graft.training.fine_tuning import FineTuned, FineTuning, fine_tune
from cl_graft.training.passes import Passes
from cl_graft.training.precision import loss_scale

__all__ = [
    "DenseRun",
    "GraftingSettings",
    "Measure",
    "Progress",
    "TaskProblem",
    "check_dense_run",
    "dense_passes",
    "fine_tune_task",
    "silent",
    "unmeasured",
]

Progress = Callable[[str, int, int], None]
"""Called as (phase, step, steps) while a phase runs."""

Measure = Callable[[str, str, int, float], None]
"""Called as (phase, name, step, value) with a loss or a dev score, at a step from 1."""


@dataclass(frozen=True)
class GraftingSettings:
    """How a task becomes a graft.

    Attributes:
        density: Share of the graftable coordinates in a task's region, in (0, 1], or ``"auto"``
            for the smallest of `budgets` whose graft keeps `auto_share` of the dense dev score.
        localizer: A name in `cl_graft.localization.LOCALIZERS`.
        fine_tuning: The dense run; a localizer that does not look at one does without it.
        warmup_rows: Training rows on which a head is fitted to the base before a localizer that
            does without a dense run looks at gradients; 0 leaves the head as it is.
        mask_steps: Gradient batches that the localizer looks at.
        mask_batch: Rows of such a batch.
        mask_candidates: Let only the coordinates that moved most be chosen, this many times the
            region's size (and as many more as earlier tasks own): the localizer's memory and
            gradients are theirs alone. None means all; localizers that cannot look at some
            coordinates alone look at all.
        micro_batch: Rows computed at a time.
        refill: Rank among the coordinates that no earlier task owns, so that late tasks keep
            their whole budget; off, a region loses what earlier tasks own, as in the paper.
        region_start: Where region training starts: ``"base"`` (re-training, the reading that
            fits the paper's Table 4) or ``"tuned"`` (the values of the independent run).
        retrain: Whether the region is trained; off, it keeps the values of the independent run, as
            it does the head's.
        region_dropout: Whether the model's dropout acts while the region trains; so few weights
            overfit little, and without it a step is cheaper.
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
    warmup_rows: int = 0
    mask_steps: int = 12
    mask_batch: int = 128
    mask_candidates: int | None = 20
    micro_batch: int = 32
    refill: bool = True
    region_start: Literal["base", "tuned"] = "base"
    retrain: bool = True
    region_dropout: bool = True
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
        if self.mask_candidates is not None and self.mask_candidates < 1:
            raise ValueError(f"mask_candidates must be at least 1, got {self.mask_candidates}")
        if self.warmup_rows < 0:
            raise ValueError(f"warmup_rows must be at least 0, got {self.warmup_rows}")
        check_dense_run(
            self.localizer,
            density=self.density,
            region_start=self.region_start,
            retrain=self.retrain,
            keep_standalone=self.keep_standalone,
        )

    def coordinates(self, total: int) -> int:
        """Return the largest budget k among `total` coordinates; at least 1."""
        density = max(self.budgets) if self.density == "auto" else self.density
        return max(1, round(density * total))

    def candidates(self, total: int, *, k: int, owned: int = 0) -> int | None:
        """Return how many of `total` coordinates may be chosen for a budget k; None means all."""
        if self.mask_candidates is None or find_localizer(self.localizer).inside is None:
            return None
        count = self.mask_candidates * k + owned
        return count if count < total else None


def check_dense_run(
    localizer: str,
    *,
    density: float | str,
    region_start: str,
    retrain: bool,
    keep_standalone: bool,
) -> None:
    """Refuse settings that need a dense run beside a localizer that does without one.

    Raises:
        InputError: If there is no localizer of this name, or a setting needs tuned values.
    """
    if find_localizer(localizer).needs_tuned:
        return
    asks = {
        "density='auto'": density == "auto",
        "region_start='tuned'": region_start == "tuned",
        "retrain=False": not retrain,
        "keep_standalone": keep_standalone,
    }
    refused = ", ".join(name for name, asked in asks.items() if asked)
    if refused:
        raise InputError(
            f"{refused} needs densely fine-tuned weights, but the localizer {localizer!r} chooses "
            "a region without a dense run; choose another localizer, such as 'learned_mask'"
        )


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
        content: What random choices are a function of beside the settings: model and data
            fingerprints.
        reading: What else determines the outcome: how the model computes and answers where its
            weights do not tell, such as its config and the label words.
        head_module: The module that `head` belongs to, asked once a batch; None where there is
            none, or where it cannot be fitted alone.
        precision: In which `forward` computes, a name in `cl_graft.training.precision.PRECISIONS`.
        recomputes: Whether the model uses gradient checkpointing, which acts in train mode only.
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
    reading: str = ""
    head_module: nn.Module | None = None
    precision: str = "fp32"
    recomputes: bool = False

    @property
    def identity(self) -> str:
        """What determines the outcome beside the settings; a cache keeps outcomes under it."""
        return f"{self.content}|{self.reading}"

    @property
    def head_shelf(self) -> dict[str, str]:
        """Under which names a cache keeps the head, by its own names.

        Those hold the task's label, which depends on the order of the stream.
        """
        return {name: f"head.{place}" for place, name in enumerate(self.head)}

    def shelved(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return tensors under the names by which a cache keeps them."""
        shelf = self.head_shelf
        return {shelf.get(name, name): tensor for name, tensor in tensors.items()}

    def from_shelf(self, kept: Mapping[str, Tensor], names: Iterable[str]) -> dict[str, Tensor]:
        """Return tensors that a cache kept under their own names, where the task computes."""
        shelf = self.head_shelf
        return {name: kept[shelf.get(name, name)].to(self.device) for name in names}

    def training_loss(
        self, settings: FineTuning, *, seed: int
    ) -> Callable[[int], Tensor | Iterable[Tensor]]:
        """Return what `fine_tune` asks for the loss of a step: that of the step's batch."""
        lengths = self.train.lengths if settings.group_by_length else None
        order = BatchOrder(len(self.train), settings.batch_size, seed, "batches", lengths=lengths)
        micro = settings.micro_batch
        if micro:
            return lambda step: self.losses(order(step), micro_batch=micro)
        return lambda step: self.loss(order(step))

    def fine_tune(
        self,
        trained: Mapping[str, nn.Parameter],
        settings: FineTuning,
        *,
        seed: int,
        **more: Any,
    ) -> FineTuned:
        """Train parameters of the model on the task's rows, and choose the best step on dev.

        Args:
            trained: What trains, by name; it stays where the last step left it.
            settings: The schedule.
            seed: Every random choice is a function of it.
            **more: Further arguments of `cl_graft.training.fine_tuning.fine_tune`.
        """
        return fine_tune(
            self.model,
            trained,
            loss=self.training_loss(settings, seed=seed),
            settings=settings,
            seed=seed,
            scale=loss_scale(self.precision),
            dev_score=self.dev_score,
            **more,
        )

    def dev_score(self) -> float:
        """Score the model as it is now on dev."""
        return self.score(*self.dev_logits())

    def dev_logits(self) -> tuple[Tensor, Tensor]:
        """Answer dev with the model as it is now: logits, (n, K), and their targets, on the CPU."""
        return compute_logits(self.forward, self.dev, device=self.device)

    def train_score(self, *, rows: int, seed: int) -> float:
        """Score the model as it is now on the first `rows` shuffled training rows."""
        places = permutation(len(self.train), seed, "train score").tolist()[:rows]
        return self.score(
            *compute_logits(self.forward, self.train, device=self.device, places=places)
        )

    def answer(self, places: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Compute the logits of some training rows, of shape (n, K), and their mean loss."""
        inputs, targets = self.train.batch(places)
        logits = self.forward(inputs.to(self.device))
        return logits, self.criterion(logits, targets.to(self.device))

    def loss(self, places: Sequence[int]) -> Tensor:
        """Compute the mean loss of some training rows."""
        return self.answer(places)[1]

    def losses(self, places: Sequence[int], *, micro_batch: int) -> Iterator[Tensor]:
        """Compute the mean loss of some training rows as a sum of terms, a few rows each."""
        places = self.train.alike(places)
        for first in range(0, len(places), micro_batch):
            part = places[first : first + micro_batch]
            yield self.loss(part) * (len(part) / len(places))


@dataclass(frozen=True, eq=False)
class DenseRun:
    """What the independent dense run of a task found.

    Attributes:
        tuned: The graftable parameters.
        head: The task's head.
        dev: Score on dev; None if it was not looked at.
        passes: What it cost, also where the cache answered.
        path: Σ −g·Δθ of the graftable parameters over its steps; None if it was not gathered.
    """

    tuned: dict[str, Tensor]
    head: dict[str, Tensor]
    dev: float | None
    passes: Passes
    path: dict[str, Tensor] | None = None


def fine_tune_task(
    task: TaskProblem,
    settings: FineTuning,
    *,
    seed: int,
    path: bool = False,
    cache: Cache | None = None,
    checkpoints: Checkpoints | None = None,
    progress: Progress | None = None,
    measure: Measure | None = None,
) -> DenseRun:
    """Run the independent dense fine-tuning of a task; the model is put back to its base.

    Args:
        task: The task.
        settings: The schedule.
        seed: Every random choice is a function of it.
        path: Whether to gather `DenseRun.path` on the way.
        cache: Answers what was computed before.
        checkpoints: Where a run that was interrupted is taken up, and kept on the way.
        progress: Called after every step.
        measure: Called with every step's loss and with dev scores.
    """
    trained = {**task.parameters, **task.head}
    before = snapshot(trained)
    phase_seed = derive(seed, task.content, "dense")
    keys = {
        phase: cache_key(phase, task.identity, asdict(settings), seed)
        for phase in ("dense", *(["path"] if path else []))
    }
    found = {phase: cache.get(key) if cache is not None else None for phase, key in keys.items()}
    answers = {phase: answer for phase, answer in found.items() if answer is not None}
    if len(answers) < len(keys):
        report, measure = progress or silent, measure or unmeasured

        def after_step(step: int, loss: float) -> None:
            measure("dense", "Loss", step, loss)
            report("dense", step, settings.steps)

        # A run that gathers its path is another one, named by it.
        own = keys["path" if path else "dense"]
        try:
            with in_phase("dense fine-tuning"):
                outcome = task.fine_tune(
                    trained,
                    settings,
                    seed=phase_seed,
                    path=path,
                    anchor={name: before[name] for name in task.parameters},
                    on_step=after_step,
                    on_look=partial(measure, "dense", "DevScore"),
                    checkpoint=checkpoints.at(own) if checkpoints else NOWHERE,
                )
        finally:
            copy_(trained, before)
        tensors, dev, gathered = outcome.tensors, outcome.dev, outcome.path
        if cache is not None:
            cache.put(keys["dense"], task.shelved(tensors), {"dev": dev, "step": outcome.step})
            if path:
                body = {name: outcome.path[name] for name in task.parameters}
                cache.put(keys["path"], body, {})
    else:
        tensors = task.from_shelf(answers["dense"][0], trained)
        dev = answers["dense"][1]["dev"]
        gathered = task.from_shelf(answers["path"][0], task.parameters) if path else {}
    return DenseRun(
        tuned={name: tensors[name] for name in task.parameters},
        head={name: tensors[name] for name in task.head},
        dev=dev,
        passes=dense_passes(task, settings),
        path={name: gathered[name] for name in task.parameters} if path else None,
    )


def dense_passes(task: TaskProblem, settings: FineTuning) -> Passes:
    """Return what a dense run of a task costs."""
    looks = min(settings.evaluations, settings.steps)
    return Passes(settings.steps * settings.batch_size, looks * len(task.dev))


def silent(phase: str, step: int, steps: int) -> None:
    """Report nothing."""
    del phase, step, steps


def unmeasured(phase: str, name: str, step: int, value: float) -> None:
    """Pass a measurement over."""
    del phase, name, step, value
