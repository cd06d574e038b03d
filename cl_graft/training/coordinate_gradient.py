"""The gradient of a linear layer's weight at chosen coordinates, without the dense gradient.

For y = x Wᵀ and g = ∂L/∂y the gradient is ∂L/∂W[o, i] = Σ_r g[r, o] · x[r, i]. Four ways to
compute it at k coordinates: *gathering* the columns of g and x; *sampling* a dense-dense product at
the pattern of a sparse matrix (SDDMM); the *dense* product, gathered and freed at once; and a
*block*, the product of some columns of g and x (`benchmarks/results/coordinate_gradient.md`).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cl_graft.runtime.forward_override import original_class

Kernel = Literal["gather", "sample", "dense", "block"]

_GATHER_SHARE = 0.5
"""Gather up to this share of (in + out) coordinates; both costs grow with the rows alike."""

_DENSE_DENSITY = 0.35
"""Take the dense product from this density of a matrix on: sampling meets it between 0.28 and 0.39
on one thread (`benchmarks/results/coordinate_gradient.md`). Off the CPU, where nothing was
measured, it is taken as soon as gathering is not."""


@dataclass(frozen=True, eq=False)
class Coordinates:
    """Coordinates inside one weight matrix, laid out for the backward pass.

    Attributes:
        rows: Row of each coordinate in the stored weight, or, where those are the input features,
            its place in `inputs`, None where that is its own number; int64, ascending. Of a block:
            its rows alone.
        columns: Column of each coordinate, likewise; ascending within a row.
        transposed: Whether the weight is stored as (in, out), as in GPT-2's Conv1D, not (out, in).
        inputs: The input features to keep, int64: those that occur, or, where few are gathered,
            that of every coordinate. None keeps all of x.
        kernel: Name of the kernel.
        starts: First place of each row in `columns` (a CSR pattern); int32, shape (rows + 1,);
            empty where the kernel does not sample.
    """

    rows: Tensor | None
    columns: Tensor | None
    transposed: bool
    inputs: Tensor | None
    kernel: Kernel
    starts: Tensor

    @classmethod
    def of(
        cls,
        inside: Tensor,
        shape: tuple[int, int],
        *,
        transposed: bool,
        kernel: Kernel | None = None,
    ) -> Coordinates:
        """Lay out flat, sorted, row-major coordinates of a weight."""
        rows = torch.div(inside, shape[1], rounding_mode="floor")
        columns = inside - rows * shape[1]
        if kernel is None and len(inside) > 15 and type(inside) is Tensor:  # a fake has no values
            sides = rows.unique(), columns.unique()
            if len(sides[0]) * len(sides[1]) == len(inside):
                kernel, (rows, columns) = "block", sides
        kernel = kernel or pick_kernel(len(inside), shape, device=inside.device)
        starts = inside.new_empty(0, dtype=torch.int32)
        if kernel == "sample":
            edges = torch.arange(shape[0] + 1, device=inside.device)
            starts = torch.searchsorted(rows, edges).to(torch.int32)
        features = rows if transposed else columns
        width = shape[0] if transposed else shape[1]
        # Where most of x is needed, x itself is kept: that makes no copy, and other layers may keep
        # it too. A sampled pattern of a transposed weight has its rows in x, so x stays whole.
        inputs = places = None
        if kernel in ("gather", "block") and 2 * len(features) < width:
            inputs = features  # kept as the backward pass needs them, gathered one a coordinate
        elif kernel not in ("dense", "block") and not (kernel == "sample" and transposed):
            distinct, places = _distinct(features, width)
            inputs = distinct if 2 * len(distinct) < width else None
        if inputs is not None:
            rows, columns = (places, columns) if transposed else (rows, places)
        return cls(rows, columns, transposed, inputs, kernel, starts)


def is_linear(module: nn.Module) -> bool:
    """Tell whether a module is exactly torch's Linear or transformers' Conv1D, not a subclass."""
    return original_class(module) is nn.Linear or is_conv1d(module)


def is_conv1d(module: nn.Module) -> bool:
    """Tell whether a module is the Conv1D of GPT-2, whose weight is stored as (in, out)."""
    kind = original_class(module)
    return kind.__name__ == "Conv1D" and kind.__module__ == "transformers.pytorch_utils"


def count_features(layer: nn.Module) -> tuple[int, int]:
    """Return how many features go into a linear layer, and out of it."""
    first, second = layer.get_parameter("weight").shape
    return (first, second) if is_conv1d(layer) else (second, first)


def pick_kernel(k: int, shape: tuple[int, int], *, device: torch.device) -> Kernel:
    """Return the fastest kernel for `k` coordinates of a matrix of this shape, as measured."""
    if k <= _GATHER_SHARE * sum(shape):
        return "gather"
    if device.type != "cpu" or k >= _DENSE_DENSITY * shape[0] * shape[1]:
        return "dense"
    return "sample"


def region_linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, values: Tensor, where: Coordinates
) -> Tensor:
    """Apply a linear layer whose weight learns at some coordinates only.

    `values`, (k,), takes no part in the result, but receives the gradient of the weight at `where`.
    """
    pattern = (where.rows, where.columns, where.starts)
    # Plain arguments: a compiler traces no dataclass through an autograd function.
    return _RegionLinear.apply(
        x, weight, bias, values, where.inputs, *pattern, where.kernel, where.transposed
    )


class _RegionLinear(torch.autograd.Function):
    """`region_linear`, with input and coordinate gradients and never a dense weight gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        values: Tensor,
        inputs: Tensor | None,
        rows: Tensor | None,
        columns: Tensor | None,
        starts: Tensor,
        kernel: Kernel,
        transposed: bool,
    ) -> Tensor:
        oriented = weight.t() if transposed else weight
        flat = x.reshape(-1, x.shape[-1])
        columns_of_x = _columns(flat, inputs)
        ctx.save_for_backward(columns_of_x, weight, rows, columns, starts)
        ctx.kernel, ctx.transposed = kernel, transposed
        ctx.dtype, ctx.shape = values.dtype, x.shape
        ctx.bias_dtype = None if bias is None else bias.dtype
        return F.linear(x, oriented.to(x.dtype), None if bias is None else bias.to(x.dtype))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        columns_of_x, weight, rows, columns, starts = ctx.saved_tensors
        gradient = gradients[0].reshape(-1, gradients[0].shape[-1])
        for_x = for_bias = for_values = None
        if ctx.needs_input_grad[2]:
            for_bias = gradient.sum(0, dtype=torch.promote_types(gradient.dtype, torch.float32))
            for_bias = for_bias.to(ctx.bias_dtype)
        if ctx.needs_input_grad[3]:
            left, right = (columns_of_x, gradient) if ctx.transposed else (gradient, columns_of_x)
            # A fake tensor has no sparse form to sample at.
            fake = ctx.kernel == "sample" and type(left) is not Tensor
            traced = fake or torch.compiler.is_compiling()
            at = _operator if traced else coordinate_gradient
            for_values = at(left, right, rows, columns, starts, ctx.kernel).to(ctx.dtype)
        # Last, as the scattered reads above are faster while the gradient is in the CPU's cache.
        if ctx.needs_input_grad[0]:
            oriented = weight.t() if ctx.transposed else weight
            for_x = (gradient @ oriented.to(gradient.dtype)).view(ctx.shape)
        return for_x, None, for_bias, for_values, None, None, None, None, None, None


def coordinate_gradient(
    left: Tensor,
    right: Tensor,
    rows: Tensor | None,
    columns: Tensor | None,
    starts: Tensor,
    kernel: str,
) -> Tensor:
    """Return (leftᵀ right)[rows, columns], (k,), summed in fp32 or wider; see `Coordinates`."""
    wide = torch.promote_types(left.dtype, torch.float32)
    if kernel == "block":
        sides = ((left, rows), (right, columns))
        left, right = (x if c is None or len(c) == x.shape[1] else x[:, c] for x, c in sides)
        return _multiply(left, right, wide).flatten()
    if kernel == "gather":
        return (_columns(left, rows).to(wide) * _columns(right, columns)).sum(0)
    if rows is None or columns is None:
        raise ValueError("coordinates in the order of what was kept can only be gathered")
    if kernel == "sample":
        zeros = torch.zeros(len(columns), dtype=wide, device=columns.device)
        shape = left.shape[1], right.shape[1]
        with warnings.catch_warnings(), torch.sparse.check_sparse_tensor_invariants(enable=False):
            warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
            pattern = torch.sparse_csr_tensor(starts, columns.to(torch.int32), zeros, shape)
        return torch.sparse.sampled_addmm(
            pattern, left.to(wide).t(), right.to(wide), beta=0.0
        ).values()
    return _multiply(left, right, wide)[rows, columns]


def _multiply(left: Tensor, right: Tensor, dtype: torch.dtype) -> Tensor:
    """Return leftᵀ right in a wider dtype; a GPU multiplies half precision and sums in fp32."""
    if left.is_cuda and left.dtype != dtype == torch.float32:
        return torch.mm(left.t(), right, out_dtype=dtype)
    return left.to(dtype).t() @ right.to(dtype)


def _columns(x: Tensor, chosen: Tensor | None) -> Tensor:
    """Return chosen columns of x, or all."""
    return x if chosen is None else x.index_select(1, chosen)


_operator = torch.library.custom_op("cl_graft::coordinates", coordinate_gradient, mutates_args=())
"""The same as one operator, which a compiler takes as it is."""


@_operator.register_fake
def _(
    left: Tensor,
    right: Tensor,
    rows: Tensor | None,
    columns: Tensor | None,
    starts: Tensor,
    kernel: str,
) -> Tensor:
    sizes = [x.shape[1] if c is None else len(c) for x, c in ((left, rows), (right, columns))]
    count = sizes[0] * sizes[1] if kernel == "block" else sizes[0]
    return left.new_empty(count, dtype=torch.promote_types(left.dtype, torch.float32))


@torch.library.custom_op("cl_graft::distinct", mutates_args=())
def _distinct(features: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Return the features that occur, of `width`, ascending, and the place of each among them."""
    distinct, places = features.unique(return_inverse=True)
    return distinct, places


@_distinct.register_fake
def _(features: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Return as many features as coordinates touch on average that are spread at random."""
    count = round(width * (1 - (1 - 1 / width) ** len(features)))
    return features.new_empty(count), torch.empty_like(features)
