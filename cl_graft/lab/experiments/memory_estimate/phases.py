"""The phases of learning a task, and the memory that each takes on a fake model.

Every phase is the package's own code (dense fine-tuning, gradient batches of localizers, region
training, evaluation), for as few steps as reach its fullest moment. The selection of coordinates
looks at numbers, which fake tensors do not have, so its work space is a constant a coordinate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Literal

import torch
from torch import Tensor

from cl_graft.grafts.graft import snapshot
from cl_graft.grafts.model_state import preserve_requires_grad
from cl_graft.grafts.region import Parameters
from cl_graft.lab.experiments.memory_estimate.fake_model import FakeModel
from cl_graft.lab.experiments.memory_estimate.memory_tracker import MemoryTracker
from cl_graft.localization.grafting_settings import GraftingSettings
from cl_graft.localization.learned_mask import score_candidates_by_learned_mask
from cl_graft.localization.localizer_inputs import LocalizerInputs, add_gradient_
from cl_graft.localization.sam import base_gradient
from cl_graft.localization.task_gradients import RowCounter, localizer_inputs
from cl_graft.training.dense_run import DenseRun, fine_tune_task
from cl_graft.training.fine_tuning_settings import FineTuning
from cl_graft.training.graft_retraining import train_region
from cl_graft.training.learnable_task import LearnableTask
from cl_graft.training.passes import Passes

__all__ = ["PHASES", "Phase", "PhaseMemory", "Workload", "measure_phase"]

_DEV_ROWS = 64
"""Rows of a batch when a phase evaluates on dev."""

_RANKED = 1 / 20
"""Share of all coordinates that a localizer ranks at least."""

_SELECTION_BYTES = 56
"""Work space of an exact selection a selected coordinate: numbers (8), scores (4), the pairs that
torch's top-k sorts on a CPU (16), and sorting the result (8 + 8 + 8), rounded up for scores equal
or close to the cut."""


@dataclass(frozen=True)
class Workload:
    """Rows, tokens and coordinates that go through the model at a time.

    Attributes:
        batch_size: Rows a training step.
        micro_batch: Rows computed at a time in training and localization; None means a whole batch
            in training, and 32 rows in localization.
        eval_batch: Rows an evaluation batch.
        length: Tokens a row.
        region: Number of coordinates of the region.
        candidates: Number of coordinates that a mask on candidates scores.
    """

    batch_size: int
    micro_batch: int | None
    eval_batch: int
    length: int
    region: int
    candidates: int

    @property
    def localized(self) -> int:
        """Rows that localization computes at a time."""
        return self.micro_batch or 32


@dataclass(frozen=True)
class PhaseMemory:
    """Bytes of a phase beside the model.

    Attributes:
        kept: Bytes that live from step to step: copies of the weights, the optimizer's state,
            scores, the region.
        step: Bytes on top in the fullest moment: activations, gradients, work space.
    """

    kept: int
    step: int


@dataclass(frozen=True)
class Phase:
    """A phase of learning a task.

    Attributes:
        name: Name of the phase.
        run: Function that runs it inside a tracker and returns the bytes that it keeps.
        rows: Field of `Workload` with the number of rows that it computes at a time.
        localizes: Whether it is a way to localize, of which a task needs one.
        instead: Alternative that takes less memory; empty if there is none.
    """

    name: str
    run: Callable[[FakeModel, Workload, MemoryTracker], int]
    rows: Literal["micro_batch", "eval_batch"] = "micro_batch"
    localizes: bool = False
    instead: str = ""


def measure_phase(phase: Phase, fake: FakeModel, work: Workload) -> PhaseMemory:
    """Run a phase on a fake model, which is put back to how it was.

    Args:
        phase: One of `PHASES`.
        fake: The model.
        work: Rows, tokens and coordinates that go through it.
    """
    tracker = MemoryTracker(fake.tensors())
    try:
        with preserve_requires_grad(fake.model), tracker:
            kept = phase.run(fake, work, tracker)
    finally:
        fake.model.eval()
    return PhaseMemory(kept, tracker.peak - kept)


def _fine_tune(
    fake: FakeModel,
    work: Workload,
    tracker: MemoryTracker,
    *,
    optimizer: Literal["sgd", "adamw"] = "sgd",
    path: bool = False,
) -> int:
    task, living = _watched_task(fake, work, tracker, rows=work.batch_size)
    fine_tune_task(task, replace(_two_steps(work), optimizer=optimizer), seed=0, path=path)
    return living[len(living) // 2]


def _train_region(fake: FakeModel, work: Workload, tracker: MemoryTracker) -> int:
    task, living = _watched_task(fake, work, tracker, rows=work.batch_size)
    region = fake.region(work.region)
    train_region(task, region, _two_steps(work), head=snapshot(task.head), seed=0)
    return living[len(living) // 2]


def _two_steps(work: Workload) -> FineTuning:
    """Return a schedule that evaluates after the first step, so that the second has a best one.

    Of a batch in parts, two parts are as full as all: the second meets the gradients of the first.
    """
    parts = work.batch_size if work.micro_batch is None else 2 * work.micro_batch
    return FineTuning(
        steps=2,
        batch_size=min(work.batch_size, parts),
        micro_batch=work.micro_batch,
        evaluations=2,
    )


def _watched_task(
    fake: FakeModel, work: Workload, tracker: MemoryTracker, *, rows: int
) -> tuple[LearnableTask, list[int]]:
    """Return a task, and a list that gets the living bytes whenever a training pass begins."""
    task = fake.task(length=work.length, train=rows, dev=_DEV_ROWS)
    living: list[int] = []

    def forward(batch: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            living.append(tracker.now)
        return task.forward(batch)

    return replace(task, forward=forward), living


def _score_by_base_gradient(fake: FakeModel, work: Workload, tracker: MemoryTracker) -> int:
    def score(inputs: LocalizerInputs) -> Mapping[str, Tensor]:
        return base_gradient(inputs, k=work.region, steps=1)

    return _localize(fake, work, tracker, score, ranked=_count_ranked(fake, work))


def _score_by_learned_mask(fake: FakeModel, work: Workload, tracker: MemoryTracker) -> int:
    def score(inputs: LocalizerInputs) -> Mapping[str, Tensor]:
        # `learned_mask` adds gains chunk by chunk: too many chunks to walk through where a model is
        # large, and each too small to count.
        gain = inputs.zeros()
        add_gradient_(inputs, 0, into=lambda name, gradient: None)
        return gain

    tuned = snapshot(fake.parameters)
    return _localize(fake, work, tracker, score, tuned=tuned, ranked=_count_ranked(fake, work))


def _score_candidates(fake: FakeModel, work: Workload, tracker: MemoryTracker) -> int:
    candidates = fake.region(work.candidates)

    def score(inputs: LocalizerInputs) -> Mapping[str, Tensor]:
        return {"": score_candidates_by_learned_mask(inputs, candidates, k=work.region, steps=1)}

    tuned = snapshot(fake.parameters)
    return _localize(fake, work, tracker, score, tuned=tuned, ranked=work.candidates)


def _count_ranked(fake: FakeModel, work: Workload) -> int:
    """Return how many coordinates a localizer ranks that scores all of them."""
    return max(20 * work.region, round(_RANKED * sum(p.numel() for p in fake.parameters.values())))


def _localize(
    fake: FakeModel,
    work: Workload,
    tracker: MemoryTracker,
    score: Callable[[LocalizerInputs], Mapping[str, Tensor]],
    *,
    ranked: int,
    tuned: Parameters = MappingProxyType({}),
) -> int:
    """Score coordinates by one gradient batch, evaluate on dev, and select `ranked` of them."""
    rows = work.localized
    task, living = _watched_task(fake, work, tracker, rows=rows)
    settings = GraftingSettings(mask_steps=1, mask_batch=rows, micro_batch=rows)
    dense = DenseRun(dict(tuned), snapshot(task.head), None, Passes())
    with localizer_inputs(task, settings, dense, counter=RowCounter()) as inputs:
        scores = score(inputs)
        inputs.dev_score()
    with fake.mode:
        largest = max(tensor.numel() for tensor in scores.values())
        space = torch.empty(_SELECTION_BYTES * ranked + largest, dtype=torch.uint8)
    del space
    return living[0]


def _evaluate(fake: FakeModel, work: Workload, tracker: MemoryTracker) -> int:
    task = fake.task(length=work.length, train=1, dev=work.eval_batch)
    inputs, _ = task.dev.batch(range(work.eval_batch))
    with torch.no_grad():
        task.forward(inputs)
    return 0


_NO_DENSE_RUN = "the localizer base_gradient, which needs no dense run"

_PHASES = (
    Phase("dense fine-tuning, SGD", _fine_tune, instead=_NO_DENSE_RUN),
    Phase("dense fine-tuning, AdamW", partial(_fine_tune, optimizer="adamw"), instead="SGD"),
    Phase(
        "dense fine-tuning, SGD with path integral",
        partial(_fine_tune, path=True),
        instead="the localizer movement",
    ),
    Phase(
        "localization, learned mask",
        _score_by_learned_mask,
        localizes=True,
        instead="a mask on candidates",
    ),
    Phase(
        "localization, candidates",
        _score_candidates,
        localizes=True,
        instead="fewer --mask-candidates",
    ),
    Phase("localization, base gradient", _score_by_base_gradient, localizes=True),
    Phase("region training", _train_region, instead="a lower --density"),
    Phase("evaluation", _evaluate, "eval_batch"),
)

PHASES: Mapping[str, Phase] = MappingProxyType({phase.name: phase for phase in _PHASES})
"""The phases by name, in the order of a task's life. A task needs one dense run and the first or
second localization, the dense run with the path integral, or the third localization alone; region
training follows each."""
