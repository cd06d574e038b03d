"""Bytes that a strategy holds between two tasks, beside the model that it trains."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from avalanche.training.templates import SupervisedTemplate
from avalanche.training.utils import ParamData
from torch import Tensor, nn

__all__ = ["count_bytes", "count_row_bytes", "find_plugin"]

_Plugin = TypeVar("_Plugin")


def count_bytes(held: Any) -> int:
    """Return the bytes of all tensors in nested dictionaries, sequences and modules.

    Only parameters of a module count, and its buffers.
    """
    if isinstance(held, Tensor):
        return held.numel() * held.element_size()
    if isinstance(held, ParamData):
        return count_bytes(held.data)
    if isinstance(held, nn.Module):
        return count_bytes([*held.parameters(), *held.buffers()])
    if isinstance(held, dict):
        return count_bytes(list(held.values()))
    if isinstance(held, list | tuple):
        return sum(count_bytes(part) for part in held)
    return 0


def count_row_bytes(buffers: Iterable[Any]) -> int:
    """Return the bytes of the rows in Avalanche's datasets, as their items are."""
    return sum(count_bytes(list(buffer[0])) * len(buffer) for buffer in buffers if len(buffer))


def find_plugin(strategy: SupervisedTemplate, kind: type[_Plugin]) -> _Plugin:
    """Return the strategy's plugin of a kind."""
    return next(plugin for plugin in strategy.plugins if isinstance(plugin, kind))
