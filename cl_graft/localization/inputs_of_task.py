"""The inputs that a localizer gets of a task: its losses, gradients and scores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from torch import Tensor

from cl_graft.errors import DivergedError
from cl_graft.grafts.model_state import replace_parameters, train_only
from cl_graft.grafts.region import Parameters
from cl_graft.localization.grafting_settings import GraftingSettings
from cl_graft.localization.localizer_inputs import LocalizerInputs
from cl_graft.runtime.batching import BatchOrder
from cl_graft.runtime.checkpoints import NO_CHECKPOINT, Checkpoint
from cl_graft.runtime.run_context import PhaseProgress, ignore_progress
from cl_graft.runtime.seeding import derive
from cl_graft.training.dense_run import DenseRun, SavedBeside
from cl_graft.training.learnable_task import LearnableTask, Passes
from cl_graft.training.precision import safe_scale
from cl_graft.training.train_mode import without_dropout

_TRAIN_ROWS = 1024
"""Training rows that `paper_mask` scores after a step, as in the published code."""


class RowCounter:
    """A count of the rows that a localizer sends through the model."""

    def __init__(self) -> None:
        self.passes = Passes()

    def beside(self, checkpoint: Checkpoint) -> Checkpoint:
        """Return a checkpoint that saves the count, too, and takes it over when it is loaded."""

        def take(values: dict[str, Any]) -> dict[str, Any]:
            self.passes = Passes(**values["passes"])
            return values

        return SavedBeside(checkpoint, lambda v: {**v, "passes": asdict(self.passes)}, take)


@contextmanager
def inputs_of_task(
    task: LearnableTask,
    settings: GraftingSettings,
    dense: DenseRun,
    *,
    counter: RowCounter,
    checkpoint: Checkpoint = NO_CHECKPOINT,
    progress: PhaseProgress = ignore_progress,
    on_loss: Callable[[int, float], None] | None = None,
) -> Iterator[LocalizerInputs]:
    """Make the inputs of a localizer from a task, for a `with` block.

    Meanwhile the model has the dense run's head, no dropout, and only its graftable parameters
    require gradients. `on_loss` is called with every step, from 1, and its loss.
    """
    source = _TaskGradients(task, settings, dense, counter, progress, on_loss)
    with ExitStack() as until_done:
        until_done.enter_context(replace_parameters(task.head, dense.head))
        until_done.enter_context(train_only(task.model, task.parameters.values()))
        task.model.eval()
        if task.recomputes:  # gradient checkpointing acts in train mode alone
            until_done.enter_context(without_dropout(task.model))
        yield LocalizerInputs(
            model=task.model,
            parameters=task.parameters,
            tuned=_select(task, dense.tuned),
            losses=source.losses,
            dev_score=source.dev_score,
            train_score=source.train_score,
            seed=source.seed,
            path=_select(task, dense.path or {}),
            loss_scale=source.loss_scale(),
            checkpoint=checkpoint,
            row_losses=source.row_losses,
        )


def localizer_seed(task: LearnableTask, settings: GraftingSettings) -> int:
    """Return the seed of a localizer's random choices for a task."""
    return derive(settings.seed, task.content, "mask")


def _select(task: LearnableTask, tensors: Parameters) -> Parameters:
    """Return the tensors of the task's parameters; an empty mapping stays empty."""
    return {name: tensors[name] for name in task.parameters} if tensors else tensors


@dataclass(eq=False)
class _TaskGradients:
    """The functions of `LocalizerInputs` for a task."""

    task: LearnableTask
    settings: GraftingSettings
    dense: DenseRun
    counter: RowCounter
    progress: PhaseProgress
    on_loss: Callable[[int, float], None] | None

    def __post_init__(self) -> None:
        self.seed = localizer_seed(self.task, self.settings)
        rows = min(self.settings.mask_batch, len(self.task.train))
        self._order = BatchOrder(len(self.task.train), rows, self.seed, "batches")

    def losses(self, step: int) -> list[Callable[[], Tensor]]:
        """Return the loss functions of a step's micro-batches."""
        places = self.task.train.sort_by_length(self._begin(step))
        size = self.settings.rows_at_once
        parts = [places[first : first + size] for first in range(0, len(places), size)]
        seen: list[float] = []

        def loss(part: Sequence[int]) -> Tensor:
            # Localizers take the mean of the parts, of which the last may be smaller.
            weight = len(part) * len(parts) / len(places)
            value = self._finite(self.task.loss(part), step) * weight
            seen.append(float(value.detach()) / len(parts))
            if self.on_loss and len(seen) == len(parts):
                self.on_loss(step + 1, sum(seen))
            return value

        return [partial(loss, part) for part in parts]

    def row_losses(self, step: int) -> list[Callable[[], Tensor]]:
        """Return the loss functions of a step's rows."""

        def loss(row: int) -> Tensor:
            return self._finite(self.task.loss([row]), step)

        return [partial(loss, row) for row in self._begin(step)]

    def dev_score(self) -> float:
        """Score the model as it is now on dev."""
        self.counter.passes += Passes(forward=len(self.task.dev))
        return self.task.dev_score()

    def train_score(self) -> float:
        """Score the model as it is now on some training rows."""
        rows = min(_TRAIN_ROWS, len(self.task.train))
        self.counter.passes += Passes(forward=rows)
        return self.task.train_score(rows=rows, seed=self.seed)

    def loss_scale(self) -> float:
        """Find the loss scale on a few random rows where the task computes in fp16; else 1."""
        task, settings = self.task, self.settings
        if task.precision != "fp16":
            return 1.0
        rows = min(settings.rows_at_once, settings.mask_batch, len(task.train))
        order = BatchOrder(len(task.train), rows, self.seed, "loss scale")
        self.counter.passes += Passes(forward_backward=rows)
        return safe_scale([lambda: task.loss(order(0))], task.parameters.values())

    def _begin(self, step: int) -> Sequence[int]:
        """Report a step, count its rows, and return their places."""
        self.progress("localize", step + 1, self.settings.mask_steps)
        places = self._order(step)
        self.counter.passes += Passes(forward_backward=len(places))
        return places

    def _finite(self, loss: Tensor, step: int) -> Tensor:
        if bool(loss.isfinite()):
            return loss
        number, steps = float(loss.detach()), self.settings.mask_steps
        lr = self.settings.fine_tuning.lr
        after = f", after a dense run with lr {lr:g}; a lower lr usually helps"
        why = after if self.dense.tuned else f"; {DivergedError.before_any_step}"
        raise DivergedError(f"the loss is {number} at step {step + 1} of {steps}{why}")
