"""Activation functions that a region's training computes again in the backward pass.

transformers writes some forms of GELU out as products, powers and a tanh. Autograd keeps the result
of each of these operations: several copies of the widest layer of a block. While a region is
trained, the input of such a function is kept alone, and the operations run once more in the
backward pass. On a CPU they go through the input piece by piece, so that what they leave stays in
the cache. Outputs and gradients have the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

from cl_graft.runtime.forward_override import current_forward, original_class

__all__ = ["compute_again", "is_written_out"]

_WRITTEN_OUT = {"AccurateGELUActivation", "FastGELUActivation", "NewGELUActivation"}
_PIECE = 131_072
"""Numbers that are computed at once on a CPU: 512 kB in fp32."""

_Function = Callable[[Tensor], Tensor]


def is_written_out(module: nn.Module) -> bool:
    """Tell whether a module is a GELU of transformers that keeps three tensors or more.

    Classes that serve torch's own GELU as well choose a method of their own for the other form.
    """
    kind = original_class(module)
    chosen = isinstance(vars(module).get("act"), MethodType)
    known = chosen or kind.__name__ in _WRITTEN_OUT
    return known and kind.__module__ == "transformers.activations"


def compute_again(module: nn.Module) -> Callable[[nn.Module, Tensor], Tensor]:
    """Return a forward, for `override_forward`, that keeps its input alone.

    Args:
        module: A function of every number on its own, without parameters (`is_written_out`).
    """
    own = current_forward(module)

    def forward(_module: nn.Module, input: Tensor) -> Tensor:
        needed = input.requires_grad and torch.is_grad_enabled()
        return (
            _Again.apply(input, own) if needed and not torch.compiler.is_compiling() else own(input)
        )

    return forward


class _Again(torch.autograd.Function):
    """A function of every number on its own, which is computed again for its gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, function: _Function) -> Tensor:
        ctx.save_for_backward(x)
        kind = x.device.type
        ctx.function = function
        ctx.autocast = (torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind))
        return _piecewise(function, x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "a second derivative was asked for (create_graph=True) while a region is trained, "
                "whose activation functions give the first one alone; close the region first"
            )
        (x,) = ctx.saved_tensors
        dtype, enabled = ctx.autocast

        def differentiate(piece: Tensor, gradient: Tensor) -> Tensor:
            piece = piece.detach().requires_grad_()
            with torch.enable_grad(), torch.autocast(x.device.type, dtype, enabled=enabled):
                result = ctx.function(piece)
            return torch.autograd.grad(result, piece, gradient)[0]

        return _piecewise(differentiate, x, gradients[0]), None


def _piecewise(function: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    """Apply a function of every number on its own to tensors of one shape."""
    first = inputs[0]
    if first.device.type != "cpu" or first.numel() <= _PIECE:
        return function(*inputs)
    flat = [one.reshape(-1).split(_PIECE) for one in inputs]
    result = first.new_empty(0)
    for place, piece in enumerate(zip(*flat, strict=True)):
        part = function(*piece)
        if place == 0:
            result = part.new_empty(first.numel())
        result[place * _PIECE : place * _PIECE + len(part)] = part
    return result.view(first.shape)
