"""The head of a task on a model of any family."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from cl_graft.kinds.text_task import TextTask
from cl_graft.models import TaskModel


def make_task_head(
    model: TaskModel,
    task: TextTask,
    *,
    label_tokens: Sequence[Sequence[int]] | None = None,
    seed: int,
) -> nn.Module:
    """Make the head that answers a task: its kind's on an encoder, else that of its prompt.

    Args:
        model: The model; the head is not added to it.
        task: The task.
        label_tokens: What the kind's `label_tokens` returned; not for encoders.
        seed: Seed of the first values of an encoder's head.

    Raises:
        InputError: If the labels' tokens do not fit the model.
    """
    if model.family == "encoder":
        return task.own_kind.make_head(model, task, seed=seed)
    return task.own_kind.make_prompted_head(model, task, label_tokens)
