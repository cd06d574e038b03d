"""Bytes that a strategy stores between two tasks, beside the model that it trains."""

from __future__ import annotations

from operator import attrgetter
from typing import Any, TypeVar

from avalanche.benchmarks.utils import AvalancheDataset
from avalanche.training.templates import SupervisedTemplate
from avalanche.training.utils import ParamData
from torch import Tensor, nn

_Plugin = TypeVar("_Plugin")


def count_bytes(held: Any) -> int:
    """Return the bytes of all tensors in nested dictionaries, sequences, modules and data sets.

    A module counts with its parameters and buffers. A data set counts with the bytes of its first
    row times the number of rows.

    Examples:
        >>> import torch
        >>> count_bytes({"head": torch.zeros(10), "rows": [torch.zeros(2, dtype=torch.int64)]})
        56
    """
    if isinstance(held, Tensor):
        return held.nbytes
    if isinstance(held, ParamData):
        return count_bytes(held.data)
    if isinstance(held, nn.Module):
        return count_bytes([*held.parameters(), *held.buffers()])
    if isinstance(held, AvalancheDataset):
        return count_bytes(list(held[0])) * len(held) if len(held) else 0
    if isinstance(held, dict):
        return count_bytes(list(held.values()))
    if isinstance(held, list | tuple):
        return sum(count_bytes(part) for part in held)
    return 0


def count_stored(kind: type, *attributes: str) -> Any:
    """Return the `storage_bytes` of a method that stores what some attributes hold.

    For example::

        storage_bytes = count_stored(EWCPlugin, "saved_params", "importances")

    Args:
        kind: Class of the plugin, or of the strategy itself, that has the attributes.
        *attributes: Their names, dotted where they lie deeper.
    """

    def storage_bytes(strategy: SupervisedTemplate) -> int:
        """Return the bytes that the strategy holds between tasks."""
        owner = strategy if isinstance(strategy, kind) else find_plugin(strategy, kind)
        return sum(count_bytes(attrgetter(name)(owner)) for name in attributes)

    return staticmethod(storage_bytes)


def find_plugin(strategy: SupervisedTemplate, kind: type[_Plugin]) -> _Plugin:
    """Return the strategy's plugin of a class."""
    return next(plugin for plugin in strategy.plugins if isinstance(plugin, kind))
