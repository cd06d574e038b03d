"""Steps of learning a task on a fake model, and the bytes that each keeps and needs.

The steps are the package's own code: dense fine-tuning, the gradients of a localizer, region
training. What is tracked is the bytes of living tensors; the work space inside an operation is not
seen.
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

from cl_graft.experiments.memory_estimate.fake_model import FakeModel
from cl_graft.grafts.graft import snapshot
from cl_graft.grafts.model_state import preserve_requires_grad
from cl_graft.training.dense_run import fine_tune_task
from cl_graft.training.fine_tuning_settings import FineTuning
from cl_graft.training.graft_retraining import train_region
from cl_graft.training.learnable_task import LearnableTask
from cl_graft.training.region_parameters import RegionParameters

__all__ = ["MemoryTracker", "StepMemory", "track_dense_run", "track_gradients", "track_region"]

_READ = torch.ops.aten._local_scalar_dense.default
_DEV_ROWS = 64
"""Rows of a batch when a training evaluates on dev."""


@dataclass(frozen=True)
class StepMemory:
    """Bytes of a training beside the model.

    Attributes:
        kept: Bytes that live from step to step: copies of the weights, the optimizer's state,
            the region.
        step: Bytes on top in the fullest moment: activations, gradients, work space.
    """

    kept: int
    step: int


def track_dense_run(
    fake: FakeModel, schedule: FineTuning, *, length: int, path: bool = False
) -> StepMemory:
    """Run two steps of dense fine-tuning.

    Args:
        fake: The model; it is put back to how it was.
        schedule: Optimizer and batch sizes.
        length: Tokens a row.
        path: Whether the path integral of the weights is kept.
    """

    def train(task: LearnableTask) -> None:
        fine_tune_task(task, _two_steps(schedule), seed=0, path=path)

    return _track(fake, train, rows=schedule.batch_size, length=length)


def track_region(
    fake: FakeModel, schedule: FineTuning, *, length: int, coordinates: int
) -> StepMemory:
    """Run two steps of training a region of so many coordinates; else as `track_dense_run`."""
    region = fake.region(coordinates)

    def train(task: LearnableTask) -> None:
        train_region(task, region, _two_steps(schedule), head=snapshot(task.head), seed=0)

    return _track(fake, train, rows=schedule.batch_size, length=length)


def track_gradients(
    fake: FakeModel, *, rows: int, length: int, coordinates: int | None
) -> StepMemory:
    """Take the gradients of one batch: at so many coordinates, or at all weights (None)."""

    def differentiate(task: LearnableTask) -> None:
        if coordinates is None:
            task.model.requires_grad_(False)
            for parameter in task.parameters.values():
                parameter.requires_grad_(True)
            task.loss(range(rows)).backward()
            task.model.zero_grad()
            return
        with RegionParameters(task.model, fake.region(coordinates)):
            task.loss(range(rows)).backward()

    return _track(fake, differentiate, rows=rows, length=length)


def _two_steps(schedule: FineTuning) -> FineTuning:
    """Return a schedule that evaluates after the first step, so that the second has a best one.

    Of a batch in parts, two parts are as full as all: the second meets the gradients of the first.
    """
    parts = schedule.batch_size if schedule.micro_batch is None else 2 * schedule.micro_batch
    return replace(schedule, steps=2, batch_size=min(schedule.batch_size, parts), evaluations=2)


def _track(
    fake: FakeModel, run: Callable[[LearnableTask], None], *, rows: int, length: int
) -> StepMemory:
    """Track a training; what lives when its middle forward pass begins is what it keeps."""
    tracker = MemoryTracker(fake.tensors())
    task = fake.task(length=length, train=rows, dev=_DEV_ROWS)
    living: list[int] = []

    def forward(batch: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            living.append(tracker.now)
        return task.forward(batch)

    try:
        with preserve_requires_grad(fake.model), tracker:
            run(replace(task, forward=forward))
    finally:
        fake.model.eval()
    kept = living[len(living) // 2]
    return StepMemory(kept, tracker.peak - kept)


class MemoryTracker(TorchDispatchMode):
    """Count the bytes of the tensors that operations make inside a `with` block.

    A storage counts once, until the last tensor on it is gone. A fake tensor that is read as a
    number is read as 1: a loss is finite, a condition holds.

    Args:
        known: Tensors that count nothing, such as those of the model.

    Attributes:
        now: Bytes that live now.
        peak: Largest number of bytes that lived at once.
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
