"""Along a dense run: the model at chosen steps, and tasks labelled by a model itself.

A region that is found at an intermediate checkpoint from the labels which the model gives there
can be followed through the whole run (Panigrahi et al., 2023, App. D.4 and Fig. 15,
https://arxiv.org/abs/2302.06600). A run is a function of its seed, so it need not be kept: it is
walked again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

import torch
from torch import Tensor

from cl_graft.grafts.model_state import preserve_modes
from cl_graft.runtime.run_context import RunContext
from cl_graft.training.dense_run import DenseRun, fine_tune_task
from cl_graft.training.examples import Examples
from cl_graft.training.fine_tuning_settings import FineTuning
from cl_graft.training.learnable_task import LearnableTask


def walk_dense_run(
    task: LearnableTask,
    settings: FineTuning,
    *,
    seed: int,
    at: Collection[int],
    visit: Callable[[int], None],
) -> DenseRun:
    """Run a dense fine-tuning and look in at chosen steps.

    Looking in changes no bit of the run, as long as `visit` leaves the weights as they were.
    """

    def step_done(phase: str, step: int, steps: int) -> None:
        del phase, steps
        if step not in at:
            return
        with preserve_modes(task.model):
            task.model.eval()
            visit(step)

    return fine_tune_task(task, settings, seed=seed, context=RunContext(progress=step_done))


def label_by_model(task: LearnableTask, *, batch: int = 64) -> LearnableTask:
    """Return a task whose labels, in train and dev, are what the model answers as it is now."""
    return replace(
        task,
        train=_relabel(task, task.train, batch),
        dev=_relabel(task, task.dev, batch),
        content=f"{task.content}, labelled by a model",
    )


def _relabel(task: LearnableTask, examples: Examples, batch: int) -> Examples:
    inputs: list[Tensor] = []
    labels: list[Tensor] = []
    with torch.no_grad():
        for first in range(0, len(examples), batch):
            places = range(first, min(first + batch, len(examples)))
            part = examples.batch(places)[0]
            inputs.append(part)
            labels.append(task.forward(part.to(task.device)).argmax(-1).cpu())
    whole = torch.cat(inputs), torch.cat(labels)
    return Examples(list(zip(*whole, strict=True)), tensors=whole)
