"""GPT-2's activation function, with less memory and time, while a region is trained.

transformers writes this form of GELU out as products, a power and a tanh. Autograd keeps the result
of each of these operations: four copies of the widest layer of a block. Here two are kept, the
input and its tanh. On a CPU the operations go through the input piece by piece, so that what lies
between them stays in the cache. They are the same operations in the same order, so outputs and
gradients have the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from cl_graft.runtime.forward_override import has_forward_override, original_class

__all__ = ["compute_tanh_gelu", "find_tanh_gelus"]

_INNER = math.sqrt(2.0 / math.pi)
_CUBE = 0.044715
_PIECE = 131_072
"""Numbers that are computed at once on a CPU: 512 kB in fp32."""


def find_tanh_gelus(model: nn.Module, like: Tensor) -> list[nn.Module]:
    """Find the modules of transformers' `NewGELUActivation`, if they are as computed here.

    None are returned if outputs or gradients have other bits, as in a version of transformers that
    computes otherwise. Modules with a forward of their own on the instance, as accelerate's hooks
    put there, or in a block of `override_forward` are left out.

    Args:
        model: Any model.
        like: A tensor of the type and on the device that the model computes in.
    """
    name = ("NewGELUActivation", "transformers.activations")
    found = [
        module
        for module in model.modules()
        if (type(module).__name__, type(module).__module__) == name
        and "forward" not in vars(module)
        and not has_forward_override(module)
    ]
    return found if found and _has_same_bits(found[0], like) else []


def _has_same_bits(module: nn.Module, like: Tensor) -> bool:
    """Tell whether outputs and gradients of a module are those of `_TanhGelu`."""
    if type(like) is not Tensor:  # a fake tensor has no bits
        return True
    found = []
    for function in (module.forward, _TanhGelu.apply):
        x = torch.linspace(-6, 6, 1001, device=like.device).to(like.dtype).requires_grad_()
        with torch.enable_grad(), torch.autocast(like.device.type, enabled=False):
            y = function(x)
            found.append((y.detach(), *torch.autograd.grad(y, x, x.detach())))
    return all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def compute_tanh_gelu(module: nn.Module, input: Tensor) -> Tensor:
    """Compute such a module, as `override_forward` calls it; two tensors are kept where it learns.

    Args:
        module: A module that `find_tanh_gelus` found.
        input: Numbers of any shape.
    """
    learns = input.requires_grad and torch.is_grad_enabled()
    autocast = torch.is_autocast_enabled(input.device.type)
    if not learns or autocast or torch.compiler.is_compiling():
        return original_class(module).forward(module, input)
    return _TanhGelu.apply(input)


class _TanhGelu(torch.autograd.Function):
    """x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³))) of every number of a tensor."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        x = x.contiguous()
        y, tanh = torch.empty_like(x), torch.empty_like(x)
        for piece, result, inner in _pieces(x, y, tanh):
            torch.pow(piece, 3.0, out=inner)
            inner.mul_(_CUBE).add_(piece).mul_(_INNER).tanh_()
            torch.mul(piece, 0.5, out=result)
            result.mul_(inner + 1.0)
        ctx.save_for_backward(x, tanh)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "a second derivative was asked for (create_graph=True) while a region is trained, "
                "whose activation functions give the first one alone; close the region first"
            )
        x, tanh = ctx.saved_tensors
        result = torch.empty_like(x)
        for piece, inner, gradient, total in _pieces(x, tanh, gradients[0].contiguous(), result):
            slope = torch.ops.aten.tanh_backward(gradient * (piece * 0.5), inner).mul_(_INNER)
            torch.mul(slope, _CUBE, out=total)
            total.mul_(piece.pow(2.0).mul_(3.0)).add_(slope)
            total.add_((gradient * (inner + 1.0)).mul_(0.5))
        return result


def _pieces(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Yield the pieces of contiguous tensors of one shape; off the CPU, all in one."""
    size = _PIECE if tensors[0].device.type == "cpu" else max(1, tensors[0].numel())
    return zip(*(tensor.view(-1).split(size) for tensor in tensors), strict=True)
