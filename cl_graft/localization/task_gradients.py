"""Posing a task to a localizer: its micro-batches, its single rows and its scores, as a `Problem`.

Rows are counted as they go through the model, and a loss that is no number stops localization and
says where.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from torch import Tensor

from cl_graft.errors import DivergedError
from cl_graft.grafts.region import Parameters
from cl_graft.localization import Problem
from cl_graft.localization.settings import GraftingSettings
from cl_graft.runtime.seeding import BatchOrder, derive
from cl_graft.training.dense_run import Measure, Progress, silent, unmeasured
from cl_graft.training.learnable_task import LearnableTask
from cl_graft.training.passes import Passes
from cl_graft.training.precision import safe_scale

__all__ = ["Count", "pose", "scaled"]


class Count:
    """Rows of localization, counted as they go through the model."""

    def __init__(self) -> None:
        self.passes = Passes()


def pose(
    task: LearnableTask,
    settings: GraftingSettings,
    *,
    tuned: Parameters,
    path: Parameters,
    count: Count,
    progress: Progress | None = None,
    measure: Measure | None = None,
) -> Problem:
    """Pose a task, on a model at its base and in eval mode, to a localizer.

    Args:
        task: The task.
        settings: How many rows a step and a micro-batch has, and the seed.
        tuned: Tuned values of the graftable parameters; empty without a dense run.
        path: The dense run's path; empty if none was gathered.
        count: Counts the rows.
        progress: Called when a step's rows are asked for.
        measure: Called with a step's loss, once its micro-batches were computed.
    """
    report, measure = progress or silent, measure or unmeasured
    seed = derive(settings.seed, task.content, "mask")
    rows = min(settings.mask_batch, len(task.train))
    order = BatchOrder(len(task.train), rows, seed, "batches")

    def losses(step: int) -> list[Callable[[], Tensor]]:
        report("localize", step + 1, settings.mask_steps)
        places = task.train.alike(order(step))
        count.passes += Passes(forward_backward=len(places))
        cuts = range(0, len(places), settings.micro_batch)
        parts = [places[cut : cut + settings.micro_batch] for cut in cuts]

        seen: list[float] = []

        def loss(part: Sequence[int]) -> Tensor:
            # Localizers take the mean of the parts, of which the last may be smaller.
            value = finite(task.loss(part), step) * (len(part) * len(parts) / len(places))
            seen.append(float(value.detach()) / len(parts))
            if len(seen) == len(parts):
                measure("localize", "Loss", step + 1, sum(seen))
            return value

        return [partial(loss, part) for part in parts]

    def answers(step: int) -> list[Callable[[], tuple[Tensor, Tensor]]]:
        report("localize", step + 1, settings.mask_steps)
        places = order(step)
        count.passes += Passes(forward_backward=len(places))

        def answer(place: int) -> tuple[Tensor, Tensor]:
            logits, loss = task.answer([place])
            return logits[0], finite(loss, step)

        return [partial(answer, place) for place in places]

    def finite(loss: Tensor, step: int) -> Tensor:
        if not bool(loss.isfinite()):
            raise DivergedError(
                f"the loss is {float(loss.detach())} at step {step + 1} of "
                f"{settings.mask_steps}{_rate(settings, tuned)}"
            )
        return loss

    def dev_score() -> float:
        count.passes += Passes(forward=len(task.dev))
        return task.dev_score()

    def train_score() -> float:
        looked = min(1024, len(task.train))
        count.passes += Passes(forward=looked)
        return task.train_score(rows=looked, seed=seed)

    return Problem(
        model=task.model,
        parameters=task.parameters,
        tuned=tuned,
        losses=losses,
        dev_score=dev_score,
        train_score=train_score,
        seed=seed,
        path=path,
        answers=answers,
    )


def scaled(
    problem: Problem, task: LearnableTask, settings: GraftingSettings, *, count: Count
) -> Problem:
    """Give a problem a loss scale, found on a few random rows, where its task computes in fp16.

    Args:
        problem: From `pose`, with the same settings.
        task: The task.
        settings: How many rows a micro-batch has.
        count: Counts the rows.
    """
    if task.precision != "fp16":
        return problem
    rows = min(settings.micro_batch, settings.mask_batch, len(task.train))
    order = BatchOrder(len(task.train), rows, problem.seed, "loss scale")
    count.passes += Passes(forward_backward=rows)
    scale = safe_scale([lambda: task.loss(order(0))], task.parameters.values())
    return replace(problem, loss_scale=scale)


def _rate(settings: GraftingSettings, tuned: Parameters) -> str:
    """Say where the tuned values came from, if there are any."""
    lr = settings.fine_tuning.lr
    return f", after a dense run with lr {lr:g}; a lower lr usually helps" if tuned else ""
