"""What a model stands at (values, gradient flags, modes), kept for a `with` block and put back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from cl_graft.graft import copy_, snapshot
from cl_graft.region import Parameters

__all__ = ["holding", "keeping", "keeping_flags", "keeping_modes", "only_training"]


@contextmanager
def keeping(parameters: Parameters) -> Iterator[dict[str, Tensor]]:
    """Put parameters back to their values, bit for bit, after a `with` block that changes them.

    Yields:
        A copy of the values.
    """
    before = snapshot(parameters)
    try:
        yield before
    finally:
        copy_(parameters, before)


@contextmanager
def holding(parameters: Parameters, values: Parameters) -> Iterator[None]:
    """Give parameters other values for a `with` block, and their own back, bit for bit.

    Args:
        parameters: By name, or buffers; those in `values` are changed.
        values: What they hold meanwhile.
    """
    with keeping({name: parameters[name] for name in values}):
        copy_(parameters, values)
        yield


@contextmanager
def keeping_flags(model: nn.Module) -> Iterator[None]:
    """Give the parameters of a model their `requires_grad` back after a `with` block.

    Gradients are freed there.
    """
    flags = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    try:
        yield
    finally:
        for parameter, flag in flags:
            parameter.requires_grad_(flag)
            parameter.grad = None


@contextmanager
def only_training(model: nn.Module, parameters: Iterable[Tensor] = ()) -> Iterator[None]:
    """Let some parameters of a model require gradients for a `with` block, and no others."""
    with keeping_flags(model):
        model.requires_grad_(False)
        for parameter in parameters:
            parameter.requires_grad_(True)
        yield


@contextmanager
def keeping_modes(model: nn.Module) -> Iterator[None]:
    """Put every module of a model back into train or eval mode after a `with` block."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
