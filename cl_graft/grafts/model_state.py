"""Blocks that change a model's values, gradient flags or modes and restore them afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from cl_graft.grafts.graft import copy_, snapshot
from cl_graft.grafts.region import Parameters
from cl_graft.runtime.forward_override import current_forward, override_forward


@contextmanager
def preserve_parameters(parameters: Parameters) -> Iterator[dict[str, Tensor]]:
    """Put parameters back to their values, bit for bit, after a `with` block, which gets a copy.

    Examples:
        >>> parameters = {"weight": torch.zeros(2)}
        >>> with preserve_parameters(parameters):
        ...     parameters["weight"] += 1
        >>> parameters["weight"]
        tensor([0., 0.])
    """
    before = snapshot(parameters)
    try:
        yield before
    finally:
        copy_(parameters, before)


@contextmanager
def replace_parameters(parameters: Parameters, values: Parameters) -> Iterator[None]:
    """Give those of the parameters that are in `values` these for a `with` block."""
    with preserve_parameters({name: parameters[name] for name in values}):
        copy_(parameters, values)
        yield


@contextmanager
def preserve_requires_grad(parameters: Iterable[Tensor]) -> Iterator[None]:
    """Give parameters their `requires_grad` back, without gradients, after a `with` block."""
    flags = [(parameter, parameter.requires_grad) for parameter in parameters]
    try:
        yield
    finally:
        for parameter, flag in flags:
            parameter.requires_grad_(flag)
            parameter.grad = None


@contextmanager
def train_only(model: nn.Module, parameters: Iterable[Tensor] = ()) -> Iterator[None]:
    """Let some parameters of a model require gradients for a `with` block, and no others."""
    with preserve_requires_grad(model.parameters()), without_nested_tensors(model):
        model.requires_grad_(False)
        for parameter in parameters:
            parameter.requires_grad_(True)
        yield


@contextmanager
def without_nested_tensors(model: nn.Module) -> Iterator[None]:
    """Let torch's transformer encoders keep their padding where they compute gradients.

    In eval mode an `nn.TransformerEncoder` drops padding if its first layer is frozen, without a
    look at later layers; one that requires gradients fails on what is left, a nested tensor.
    """
    with ExitStack() as block:
        for module in model.modules():
            if isinstance(module, nn.TransformerEncoder) and module.use_nested_tensor:
                block.enter_context(
                    override_forward(module, _keep_padding(current_forward(module)))
                )
        yield


def _keep_padding(original: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def forward(encoder: nn.TransformerEncoder, *args: Any, **settings: Any) -> Tensor:
        if not torch.is_grad_enabled() or not any(p.requires_grad for p in encoder.parameters()):
            return original(*args, **settings)
        encoder.use_nested_tensor = False
        try:
            return original(*args, **settings)
        finally:
            encoder.use_nested_tensor = True

    return forward


@contextmanager
def preserve_modes(model: nn.Module) -> Iterator[None]:
    """Put every module of a model back into train or eval mode after a `with` block."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
