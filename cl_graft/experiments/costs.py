"""What a task costs with a strategy: rows through the model, bytes to be stored, phases noted."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import torch
from avalanche.training.templates import SupervisedTemplate
from torch import nn

from cl_graft.experiments.recording import entry_bytes, tensor_bytes
from cl_graft.models import TaskModel, graftable_parameters
from cl_graft.strategies.heads import head_state, unwrap_model
from cl_graft.strategies.method import Method
from cl_graft.training.passes import Passes

__all__ = ["PassCounter", "noted", "stored_bytes"]


class PassCounter:
    """Counts the rows that go through a model, and through copies made of it, whoever sends them.

    Rows count as differentiated where gradients are recorded.

    Args:
        model: An encoder's features are counted too where they are asked without a head.
    """

    def __init__(self, model: TaskModel) -> None:
        rows = {True: 0, False: 0}

        # A function, as copies of a model share it with the model; a method's owner would be
        # copied.
        def count(module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
            rows[torch.is_grad_enabled()] += len(inputs[0] if inputs else named["input_ids"])

        watched = model.backbone if model.family == "encoder" else model
        watched.register_forward_pre_hook(count, with_kwargs=True)
        self._rows = rows

    def take(self) -> Passes:
        """Return what was counted since the last time."""
        taken = Passes(self._rows[True], self._rows[False])
        self._rows[True] = self._rows[False] = 0
        return taken


def stored_bytes(
    row: Method, strategy: SupervisedTemplate, label: int, *, task: str, bank: Path
) -> int:
    """Return what a task adds to what must be stored, beside what the strategy holds.

    Args:
        row: The strategy's.
        strategy: The strategy, which has learned the task.
        label: The task's label.
        task: Its name.
        bank: The folder of the run's bank, for strategies that keep one.
    """
    if row.stored_as == "entry":
        return entry_bytes(bank)[task]
    model = unwrap_model(strategy.model)
    heads = cast(TaskModel, model).heads
    known = any(heads[str(label)] is heads[str(earlier)] for earlier in range(label))
    tensors = [] if known else list(head_state(model, label).values())
    if row.stored_as == "model":
        tensors += [p.detach() for p in graftable_parameters(model).values()]
    return tensor_bytes(tensors)


def noted(strategy: SupervisedTemplate, what: str, label: int) -> dict[str, Any]:
    """Return what the strategy's plugin noted of its phases, such as its seconds, if it did."""
    found = (getattr(plugin, what, None) for plugin in strategy.plugins)
    return next((dict(n[label]) for n in found if isinstance(n, dict) and label in n), {})
