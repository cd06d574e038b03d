"""The memory of a phase of learning: its code runs on fake tensors while a tracker counts bytes.

Each phase runs for as few steps as reach its fullest moment. The work space inside an operation is
not seen.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from cl_graft.grafts.graft import snapshot
from cl_graft.grafts.model_state import preserve_requires_grad
from cl_graft.lab.experiments.memory_estimate.fake_model import FakeModel
from cl_graft.localization import LocalizerInputs, find_localizer
from cl_graft.localization.grafting_settings import GraftingSettings
from cl_graft.localization.localizer_inputs import add_gradient_
from cl_graft.localization.task_gradients import RowCounter, localizer_inputs
from cl_graft.training.dense_run import DenseRun, fine_tune_task
from cl_graft.training.fine_tuning_settings import FineTuning
from cl_graft.training.graft_retraining import train_region
from cl_graft.training.learnable_task import LearnableTask
from cl_graft.training.passes import Passes

_READ = torch.ops.aten._local_scalar_dense.default

_DEV_ROWS = 64
"""Rows of a batch when a phase evaluates on dev."""

_SELECTION_BYTES = 56
"""Work space of an exact selection a selected coordinate, which fake tensors do not show: numbers
(8), scores (4), the pairs that torch's top-k sorts on a CPU (16), and sorting the result
(8 + 8 + 8), rounded up for scores equal or close to the cut."""


class MemoryTracker(TorchDispatchMode):
    """Count the bytes of the tensors that operations make inside a `with` block.

    A storage counts once, until the last tensor on it is gone, in `now`; `peak` is the most that
    lived at once. Tensors given as `known`, such as those of the model, count nothing. A fake
    tensor that is read as a number is read as 1: a loss is finite, a condition holds.
    """

    def __init__(self, known: Iterable[Tensor] = ()) -> None:
        super().__init__()
        self.now = 0
        self.peak = 0
        self._known = [tensor.untyped_storage() for tensor in known]
        self._bytes = {storage._cdata: 0 for storage in self._known}

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run an operation and count what it made."""
        if func is _READ and isinstance(args[0], FakeTensor):
            return 1.0 if args[0].is_floating_point() else 1
        out = func(*args, **(kwargs or {}))
        for leaf in pytree.tree_leaves(out):
            if isinstance(leaf, Tensor) and leaf.layout == torch.strided:
                self._count(leaf)
        return out

    def _count(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._bytes:
            return
        self._bytes[key] = storage.nbytes()
        self.now += self._bytes[key]
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._forget, key)

    def _forget(self, key: int) -> None:
        self.now -= self._bytes.pop(key, 0)


@dataclass(frozen=True)
class PlannedPhase:
    """Memory of a phase, in bytes.

    Attributes:
        name: Name of the phase.
        kept: Bytes beside the model that live from step to step: copies of the weights, the
            optimizer's state, scores, the region.
        step: Bytes on top in the fullest moment: activations, gradients, work space.
        peak: Sum of model, kept and step: what the process needs above its imports.
    """

    name: str
    kept: int
    step: int
    peak: int


def track_dense_run(
    fake: FakeModel, settings: FineTuning, *, length: int, path: bool = False
) -> PlannedPhase:
    """Track two steps of a dense run on rows of `length` tokens, with evaluations on dev.

    With `path` the path integral is summed up.
    """
    short = _two_steps(settings)

    def train(task: LearnableTask) -> None:
        fine_tune_task(task, short, seed=0, path=path)

    return _track("dense run", fake, train, rows=short.batch_size, length=length)


def track_region(
    fake: FakeModel, settings: FineTuning, *, length: int, coordinates: int
) -> PlannedPhase:
    """Track two steps of a region's training, with evaluations on dev."""
    short = _two_steps(settings)

    def train(task: LearnableTask) -> None:
        region = fake.region(coordinates)
        train_region(task, region, short, head=snapshot(task.head), seed=0)

    return _track("region training", fake, train, rows=short.batch_size, length=length)


def track_gradients(fake: FakeModel, settings: GraftingSettings, *, length: int) -> PlannedPhase:
    """Track localization: one micro-batch of gradients, an evaluation on dev, and the selection."""
    localizer, rows = find_localizer(settings.localizer), settings.rows_at_once
    total = sum(parameter.numel() for parameter in fake.parameters.values())
    k = settings.coordinates(total)
    candidates = settings.candidates(total, k=k)
    ranked = min(total, max(20 * k, total // 20)) if candidates is None else candidates

    def score(inputs: LocalizerInputs) -> Mapping[str, Tensor]:
        if candidates is not None and localizer.score_candidates is not None:
            some = fake.region(candidates)
            return {"": localizer.score_candidates(inputs, some, k=k, steps=1)}
        # The localizers' own sums go over each tensor in chunks: too many to walk through where a
        # model is large, and each too small to count.
        scores = inputs.zeros()
        if localizer.needs_gradients:
            add_gradient_(inputs, 0, into=lambda name, gradient: None)
        return scores

    def localize(task: LearnableTask) -> None:
        tuned = snapshot(fake.parameters) if localizer.needs_dense_run else {}
        dense = DenseRun(tuned, snapshot(task.head), None, Passes())
        step = replace(settings, mask_steps=1, mask_batch=rows, micro_batch=rows)
        with localizer_inputs(task, step, dense, counter=RowCounter()) as inputs:
            scores = score(inputs)
            inputs.dev_score()
        with fake.mode:
            largest = max(tensor.numel() for tensor in scores.values())
            space = torch.empty(_SELECTION_BYTES * ranked + largest, dtype=torch.uint8)
        del space

    return _track("localization", fake, localize, rows=rows, length=length)


def _track(
    name: str, fake: FakeModel, run: Callable[[LearnableTask], None], *, rows: int, length: int
) -> PlannedPhase:
    """Run a phase on a task of `rows` training texts; the model is put back to how it was."""
    tracker = MemoryTracker(fake.tensors())
    living: list[int] = []
    """Living bytes whenever a training pass begins."""
    task = fake.task(length=length, train=rows, dev=_DEV_ROWS)

    def forward(batch: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            living.append(tracker.now)
        return task.forward(batch)

    try:
        with preserve_requires_grad(fake.model), tracker:
            run(replace(task, forward=forward))
    finally:
        fake.model.eval()
    kept = living[len(living) // 2] if living else 0
    return PlannedPhase(name, kept, tracker.peak - kept, fake.backbone_bytes + tracker.peak)


def _two_steps(settings: FineTuning) -> FineTuning:
    """Return a schedule that evaluates after the first step, so that the second has a best one.

    Of a batch in parts, two parts are as full as all: the second meets the gradients of the first.
    """
    batch, micro = settings.batch_size, settings.micro_batch
    return replace(
        settings,
        steps=2,
        lr=1.0,
        batch_size=batch if micro is None else min(batch, 2 * micro),
        evaluations=2,
    )
