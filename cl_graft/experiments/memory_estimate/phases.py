"""What each phase of learning a task holds, found by letting it run on a hollow model.

The phases run the package's own code (dense fine-tuning, the gradients of localizers, the layers
of a region) for as few steps as reach its fullest moment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

import torch
from torch import Tensor, nn

from cl_graft.experiments.memory_estimate.ledger import Ledger
from cl_graft.experiments.memory_estimate.weightless_model import HollowModel
from cl_graft.experiments.memory_estimate.weightless_region import hollow_region
from cl_graft.grafts.graft import snapshot
from cl_graft.grafts.model_state import keeping_flags
from cl_graft.localization.localizer_inputs import LocalizerInputs, add_gradient_
from cl_graft.training.dense_run import fine_tune_task
from cl_graft.training.dropout import without_dropout
from cl_graft.training.fine_tuning import FineTuning
from cl_graft.training.learnable_task import LearnableTask

__all__ = ["PHASES", "Phase", "PhaseMemory", "Workload", "measure_phase"]

_DEV_ROWS = 64
"""Rows at a time when a phase looks at dev."""

_RANKED = 1 / 20
"""Share of all coordinates that a localizer ranks at least."""

_SELECTION_BYTES = 56
"""Work space of an exact selection a selected coordinate: numbers (8), scores (4), the pairs that
torch's top-k sorts on a CPU (16), and sorting the result (8 + 8 + 8), rounded up for scores equal
or close to the cut."""


@dataclass(frozen=True)
class Workload:
    """How much goes through the model at a time.

    Attributes:
        batch_size: Rows a training step.
        micro_batch: Rows computed at a time in training and localization; None for a batch at
            once, and 32 in localization.
        eval_batch: Rows an evaluation batch.
        length: Tokens a row.
        region: Coordinates of the region.
        candidates: Coordinates that a mask on candidates scores.
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
        kept: What lives on from step to step: copies of the weights, the optimiser's state,
            scores, the region.
        step: What is needed on top in the fullest moment: activations, gradients, work space.
    """

    kept: int
    step: int


@dataclass(frozen=True)
class Phase:
    """A phase of learning a task.

    Attributes:
        name: What to call it.
        run: Lets it run inside a ledger and returns what it keeps, in bytes.
        rows: The field of `Workload` that says how many rows it computes at a time.
        localizes: Whether it localizes.
        like: The phase whose steps it takes, keeping what `run` makes on top.
        instead: What does its work with less memory; empty if nothing does.
    """

    name: str
    run: Callable[[HollowModel, Workload, Ledger], int]
    rows: Literal["micro_batch", "eval_batch"] = "micro_batch"
    localizes: bool = False
    like: str = ""
    instead: str = ""


def measure_phase(
    phase: Phase,
    hollow: HollowModel,
    work: Workload,
    *,
    known: Mapping[str, PhaseMemory] = MappingProxyType({}),
) -> PhaseMemory:
    """Let a phase run on a hollow model, which is put back to how it was.

    Args:
        phase: One of `PHASES`.
        hollow: The model.
        work: How much goes through it.
        known: What was measured of other phases with the same model and work.
    """
    ledger = Ledger(hollow.tensors())
    try:
        with keeping_flags(hollow.model), ledger:
            kept = phase.run(hollow, work, ledger)
    finally:
        hollow.model.eval()
    if not phase.like:
        return PhaseMemory(kept, ledger.peak - kept)
    same = known.get(phase.like) or measure_phase(PHASES[phase.like], hollow, work)
    return PhaseMemory(same.kept + kept, same.step)


def _dense(hollow: HollowModel, work: Workload, ledger: Ledger) -> int:
    task = _task(hollow, work, train=work.batch_size)
    living: list[int] = []

    def forward(batch: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            living.append(ledger.now)
        return task.forward(batch)

    settings = FineTuning(
        steps=2, batch_size=work.batch_size, micro_batch=work.micro_batch, evaluations=2
    )
    fine_tune_task(replace(task, forward=forward), settings, seed=0)
    return living[len(living) // 2]  # when the second step begins


def _moments(hollow: HollowModel, work: Workload, ledger: Ledger) -> int:
    """Make what AdamW keeps from its first step on: two moments a trained value."""
    trained = [*hollow.parameters.values(), *hollow.head.values()]
    moments = [torch.zeros_like(tensor) for tensor in trained for _ in range(2)]
    kept = ledger.now
    del moments
    return kept


def _gathering(hollow: HollowModel, work: Workload, ledger: Ledger) -> int:
    """Make what a run adds up for `path_integral`: where a step starts, the sum, the best's sum."""
    trained = [*hollow.parameters.values(), *hollow.head.values()]
    gathered = [torch.zeros_like(tensor) for tensor in trained]
    gathered += [torch.zeros_like(t, dtype=torch.float32) for t in trained for _ in range(2)]
    kept = ledger.now
    del gathered
    return kept


def _base_gradient(hollow: HollowModel, work: Workload, ledger: Ledger) -> int:
    return _scores(hollow, work, ledger, tuned={})


def _learned_mask(hollow: HollowModel, work: Workload, ledger: Ledger) -> int:
    return _scores(hollow, work, ledger, tuned=snapshot(hollow.parameters))


def _scores(
    hollow: HollowModel, work: Workload, ledger: Ledger, *, tuned: Mapping[str, Tensor]
) -> int:
    """Gather one score a coordinate from gradients, look at dev, and select."""
    task = _task(hollow, work, train=work.localized)
    inputs = _inputs(hollow, task, tuned)
    scores = inputs.zeros()
    kept = ledger.now
    with _localizing(hollow):
        add_gradient_(inputs, 0, into=lambda name, gradient: None)
        task.dev_score()
    with hollow.mode:
        largest = max(tensor.numel() for tensor in scores.values())
        ranked = max(20 * work.region, round(_RANKED * inputs.layout.total))
        space = torch.empty(_SELECTION_BYTES * ranked + largest, dtype=torch.uint8)
    del space
    return kept


def _learned_mask_inside(hollow: HollowModel, work: Workload, ledger: Ledger) -> int:
    """Gather scores at candidates alone, which are trained like a region."""
    tuned = snapshot(hollow.parameters)
    task = _task(hollow, work, train=work.localized)
    with hollow_region(hollow, work.candidates) as vector:
        values = [torch.empty_like(vector) for _ in range(4)]  # base, tuned, δ, gains
        kept = ledger.now
        with _localizing(hollow):
            task.loss(range(work.localized)).backward()
            vector.grad = None
            task.dev_score()
        with hollow.mode:
            space = torch.empty(_SELECTION_BYTES * work.candidates, dtype=torch.uint8)
        del values, space
    del tuned
    return kept


def _region(hollow: HollowModel, work: Workload, ledger: Ledger) -> int:
    task = _task(hollow, work, train=work.batch_size)
    head = list(hollow.head.values())
    with hollow_region(hollow, work.region) as vector:
        for parameter in head:
            parameter.requires_grad_(True)
        optimizer = torch.optim.SGD([vector, *head], lr=0.1)
        base_and_best = vector.detach().clone(), vector.detach().clone()
        kept = ledger.now
        hollow.model.train()
        rows = range(work.batch_size)
        for part in task.losses(rows, micro_batch=work.micro_batch or work.batch_size):
            part.backward()
        nn.utils.clip_grad_norm_([vector, *head], 1.0)
        optimizer.step()
        optimizer.zero_grad()
        hollow.model.eval()
        task.dev_score()
        del base_and_best
    return kept


def _evaluation(hollow: HollowModel, work: Workload, ledger: Ledger) -> int:
    task = _task(hollow, work, train=work.eval_batch)
    inputs, _ = task.train.batch(range(work.eval_batch))
    with torch.no_grad():
        task.forward(inputs)
    return 0


def _localizing(hollow: HollowModel) -> AbstractContextManager[object]:
    """Return the mode in which localizers compute: no dropout."""
    hollow.model.eval()
    return without_dropout(hollow.model) if hollow.model.recomputes else nullcontext()


def _task(hollow: HollowModel, work: Workload, *, train: int) -> LearnableTask:
    return hollow.problem(length=work.length, train=train, dev=_DEV_ROWS)


def _inputs(
    hollow: HollowModel, task: LearnableTask, tuned: Mapping[str, Tensor]
) -> LocalizerInputs:
    rows = range(len(task.train))
    return LocalizerInputs(
        model=hollow.model,
        parameters=hollow.parameters,
        tuned=tuned,
        losses=lambda step: [lambda: task.loss(rows)],
        dev_score=task.dev_score,
        train_score=task.dev_score,
        seed=0,
    )


_SGD = "dense fine-tuning, SGD"
_NO_DENSE_RUN = "the localizer base_gradient, which needs no dense run"

PHASES: Mapping[str, Phase] = MappingProxyType(
    {
        phase.name: phase
        for phase in (
            Phase(_SGD, _dense, instead=_NO_DENSE_RUN),
            Phase("dense fine-tuning, AdamW", _moments, like=_SGD, instead="SGD"),
            Phase(
                "dense fine-tuning, SGD with path integral",
                _gathering,
                like=_SGD,
                instead="the localizer movement",
            ),
            Phase(
                "localization, learned mask",
                _learned_mask,
                localizes=True,
                instead="a mask on candidates",
            ),
            Phase(
                "localization, candidates",
                _learned_mask_inside,
                localizes=True,
                instead="fewer --mask-candidates",
            ),
            Phase("localization, base gradient", _base_gradient, localizes=True),
            Phase("region training", _region, instead="a lower --density"),
            Phase("evaluation", _evaluation, "eval_batch"),
        )
    }
)
"""The phases, in the order of a task's life. A task needs one dense run and the first or second
localization, the dense run with the path integral, or the third localization alone; region
training follows each."""
