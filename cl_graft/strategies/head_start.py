"""The values that a task's head starts from when its region trains.

There are three candidates: the head of the dense run, the head of an earlier task with the same
labels on which the task builds, and a head that is fitted to the features of the model as it is
now. Each can be scored on dev, and the best one taken.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from cl_graft.grafts.bank import GraftBank
from cl_graft.grafts.graft import copy_, snapshot
from cl_graft.grafts.model_state import preserve_modes
from cl_graft.localization.grafting_settings import GraftingSettings
from cl_graft.strategies.heads import find_heads
from cl_graft.training.learnable_task import LearnableTask
from cl_graft.training.linear_probe import count_probe_passes, score_fitted_head
from cl_graft.training.passes import Passes

__all__ = ["earlier_head", "start_head_"]

_ROWS = 512
"""Number of training rows that a head is fitted to."""


def start_head_(
    task: LearnableTask,
    settings: GraftingSettings,
    *,
    earlier: Mapping[str, Tensor] | None,
    seed: int,
) -> Passes:
    """Set a task's head to the values that `head_start` asks for.

    The head has the values of the dense run when this is called. It keeps them if there is no
    earlier head with these labels, or if the head cannot be fitted alone.

    Args:
        task: The task, on the model whose region is to train.
        settings: Settings of the task; only `head_start` is read.
        earlier: Values of the earlier head, as `earlier_head` returns them.
        seed: Seed of the draw of rows for a fit.

    Returns:
        The rows that went through the model.

    Raises:
        DivergedError: If a feature is NaN or infinite.
    """
    asked = settings.head_start
    if asked == "dense" or not task.head:
        return Passes()
    if asked == "earlier":
        copy_(task.head, earlier or {})
        return Passes()
    passes, scored = Passes(), list[tuple[float, Mapping[str, Tensor]]]()
    with preserve_modes(task.model):
        task.model.eval()
        if asked == "dev":
            for values in (snapshot(task.head), *([earlier] if earlier else [])):
                copy_(task.head, values)
                scored.append((task.dev_score(), values))
                passes += Passes(forward=len(task.dev))
            copy_(task.head, scored[0][1])
        if task.head_module is not None:
            values, score = score_fitted_head(task, rows=_ROWS, seed=seed)
            scored.append((score, values))
            passes += count_probe_passes(task, rows=_ROWS)
    if scored:
        # Of equal scores, max takes the first.
        copy_(task.head, max(scored, key=lambda found: found[0])[1])
    return passes


def earlier_head(
    task: LearnableTask, bank: GraftBank, *, builds_on: tuple[int, ...], label: int, names: object
) -> dict[str, Tensor] | None:
    """Return the head of the latest entry that a task builds on and that has the same labels.

    Args:
        task: The task.
        bank: Bank of the earlier tasks.
        builds_on: Positions of the entries that the task builds on.
        label: Label of the task.
        names: Names of the task's labels; None where they are not known.

    Returns:
        The values by the names of `task.head`; None if there is no such entry.
    """
    heads = find_heads(task.model, label)
    if names is None or len(heads) != 1:
        return None
    start = f"{heads[0].path}." if heads[0].path else ""
    for place in reversed(builds_on):
        entry = bank.entries[place]
        if entry.metadata.get("label_names") != names:
            continue
        found = {name: entry.head.get(name.removeprefix(start)) for name in task.head}
        fits = {
            name: value.to(task.device, task.head[name].dtype)
            for name, value in found.items()
            if value is not None and value.shape == task.head[name].shape
        }
        if len(fits) == len(task.head):
            return fits
    return None
