"""Which parts of a model belong to a single task.

Task heads are no part of a region: they are small, stored whole with their entry, and frozen once
their task is learned.
"""

from __future__ import annotations

from avalanche.models import MultiHeadClassifier, MultiTaskModule
from torch import Tensor, nn

from cl_graft.bank import Entry
from cl_graft.models import TaskModel
from cl_graft.strategies.multitask import MultiTaskText

__all__ = [
    "carrier_of",
    "has_task_heads",
    "head_module",
    "head_paths",
    "head_state",
    "load_head_",
]


def carrier_of(model: nn.Module) -> nn.Module:
    """Return the module whose parameters a bank names: the `TaskModel` inside, or the model."""
    return model.task_model if isinstance(model, MultiTaskText) else model


def has_task_heads(model: nn.Module) -> bool:
    """Tell whether a model answers by task label."""
    return isinstance(model, MultiTaskModule)


def head_paths(carrier: nn.Module) -> tuple[str, ...]:
    """Return the module paths under which all task heads live; none for a shared classifier."""
    if isinstance(carrier, TaskModel):
        return ("heads",)
    return tuple(
        name for name, module in carrier.named_modules() if isinstance(module, MultiHeadClassifier)
    )


def head_module(carrier: nn.Module, label: int) -> tuple[str, nn.Module] | None:
    """Return path and module of one task's head; None for a shared classifier."""
    if isinstance(carrier, TaskModel):
        return f"heads.{label}", carrier.heads[str(label)]
    for name, module in carrier.named_modules():
        if isinstance(module, MultiHeadClassifier):
            path = f"{name}.classifiers.{label}" if name else f"classifiers.{label}"
            return path, module.classifiers[str(label)]
    return None


def head_state(carrier: nn.Module, label: int) -> dict[str, Tensor]:
    """Copy a task head's parameters and buffers, named relative to the head."""
    found = head_module(carrier, label)
    if found is None:
        return {}
    return {name: tensor.detach().cpu().clone() for name, tensor in found[1].state_dict().items()}


def load_head_(carrier: nn.Module, entry: Entry) -> None:
    """Give a task's head the values that one of its entries kept.

    A head that Avalanche has widened for new classes is left alone: it still holds the old values.
    """
    found = head_module(carrier, entry.label)
    if found is None:
        return
    now = found[1].state_dict()
    if all(name in now and now[name].shape == kept.shape for name, kept in entry.head.items()):
        found[1].load_state_dict(dict(entry.head), strict=False)
