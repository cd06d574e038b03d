"""The values that a task's head starts from when its region trains.

A dense run leaves a head that fits its own body. An earlier task with the same labels left one
that fits a body on which the task builds, and a closed-form fit gives one for the features that
there are now. Which is best is a matter of one score on dev each.
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
"""Training rows that a head is fitted to."""


def start_head_(
    task: LearnableTask,
    settings: GraftingSettings,
    *,
    earlier: Mapping[str, Tensor] | None,
    seed: int,
) -> Passes:
    """Give a task's head the values that it starts from, and return the rows that took.

    It has those of the dense run when this is called, and keeps them where `head_start` asks for
    what there is not: no earlier head of these labels, or a head that cannot be fitted alone.

    Args:
        task: The task, on the model whose region is to train.
        settings: Its settings; of them `head_start` is read.
        earlier: Values of the earlier head, as `earlier_head` returns them.
        seed: Draws the rows of a fit.

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
        copy_(task.head, max(scored, key=lambda found: found[0])[1])  # of equal ones the first
    return passes


def earlier_head(
    task: LearnableTask, bank: GraftBank, *, builds_on: tuple[int, ...], label: int, names: object
) -> dict[str, Tensor] | None:
    """Return the head of the latest entry with the same labels that a task builds on.

    Args:
        task: The task.
        bank: Bank of the earlier tasks.
        builds_on: Entries that it builds on.
        label: Its task label.
        names: Names of its labels; None where they are not known.

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
