"""Localizers that may choose parameters of one kind only: biases, norms, weight matrices.

A budget above the number of such coordinates is reduced to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from cl_graft.errors import InputError
from cl_graft.grafts.region import Layout, Parameters, Region
from cl_graft.localization.gradients import base_gradient
from cl_graft.localization.localizer_inputs import LocalizerInputs
from cl_graft.localization.registry import register_localizer


def biases(model: nn.Module, parameters: Mapping[str, nn.Parameter]) -> Region:
    """Return the coordinates of biases: parameters whose name ends in "bias"."""
    return _coordinates(parameters, lambda name: name.endswith("bias"), "biases")


def layer_norms(model: nn.Module, parameters: Mapping[str, nn.Parameter]) -> Region:
    """Return the coordinates of normalisation layers: modules whose class name ends in "Norm"."""
    inside = {
        id(parameter)
        for module in model.modules()
        if type(module).__name__.endswith("Norm")
        for parameter in module.parameters(recurse=False)
    }
    return _coordinates(
        parameters, lambda name: id(parameters[name]) in inside, "normalisation layers"
    )


def weight_matrices(model: nn.Module, parameters: Mapping[str, nn.Parameter]) -> Region:
    """Return the coordinates of weight matrices: parameters of two or more dimensions."""
    return _coordinates(parameters, lambda name: parameters[name].dim() > 1, "weight matrices")


def _coordinates(
    parameters: Mapping[str, nn.Parameter], chosen: Callable[[str], bool], kind: str
) -> Region:
    layout = Layout.of(parameters)
    parts = [
        torch.arange(start, start + size)
        for name, start, size in zip(layout.names, layout.starts, layout.sizes, strict=False)
        if chosen(name)
    ]
    if not parts:
        raise InputError(f"the model has no {kind} among its graftable parameters")
    return Region(layout, torch.cat(parts))


register_localizer(
    name="bias_only",
    source="Ben Zaken et al., 2022, https://arxiv.org/abs/2106.10199 (BitFit)",
    needs_dense_run=False,
    allowed=biases,
)(base_gradient)
register_localizer(
    name="layer_norm_only",
    source="Qi et al., 2022, https://arxiv.org/abs/2211.08682",
    needs_dense_run=False,
    allowed=layer_norms,
)(base_gradient)


@register_localizer(
    name="base_gradient_rows",
    source="Yang et al., 2024, https://arxiv.org/abs/2412.06289 (unit), with this package's score",
    needs_dense_run=False,
    whole_lines=True,
    allowed=weight_matrices,
)
def base_gradient_rows(inputs: LocalizerInputs, *, k: int, steps: int) -> Parameters:
    """Score rows by the energy of their summed gradient at the base, mean of (Σ g)² over a row."""
    scores = {}
    for name, size in base_gradient(inputs, k=k, steps=steps).items():
        # Vectors, which are not chosen, get 0.
        energy = size.square().flatten(1).mean(1) if size.dim() > 1 else size.new_zeros(1)
        scores[name] = energy.reshape(-1, *[1] * (size.dim() - 1)).expand(size.shape).clone()
    return scores


@register_localizer(
    name="snip",
    source="Lee et al., 2019, https://arxiv.org/abs/1810.02340, Sec. 4.1, on a trained model",
    needs_dense_run=False,
    allowed=weight_matrices,
)
def snip(inputs: LocalizerInputs, *, k: int, steps: int) -> dict[str, Tensor]:
    """Score weights by how much the loss feels their removal, |w · Σ g| at the base."""
    sizes = base_gradient(inputs, k=k, steps=steps)
    return {name: size.mul_(inputs.base[name]).abs_() for name, size in sizes.items()}


register_localizer(
    name="snip_by_tensor",
    source="Bhardwaj et al., 2024, https://arxiv.org/abs/2406.13175 (SHiRA-SNIP)",
    needs_dense_run=False,
    per_tensor=True,
    allowed=weight_matrices,
)(snip)


_WIDTH_PER_RANK = 32
"""Smaller dimension of a matrix divided by its rank r: 4,096 / 128 in the published code."""


@register_localizer(
    name="lift",
    source="Liu et al., 2025, https://arxiv.org/abs/2506.00772",
    needs_gradients=False,
    needs_dense_run=False,
    per_tensor=True,
    allowed=weight_matrices,
)
def lift(
    inputs: LocalizerInputs, *, k: int, steps: int, rank: int | None = None
) -> dict[str, Tensor]:
    """Score weights by the size of their entry in their matrix's rank-r approximation, |W′|."""
    return {
        name: _approximate(value, rank).abs_() if value.dim() > 1 else torch.zeros_like(value)
        for name, value in inputs.base.items()
    }


def _approximate(matrix: Tensor, rank: int | None) -> Tensor:
    """Return the best approximation of a rank, fp32, in the matrix's shape."""
    flat = matrix.detach().float().flatten(1)
    rank = max(1, min(flat.shape) // _WIDTH_PER_RANK) if rank is None else rank
    left, values, right = torch.linalg.svd(flat, full_matrices=False)
    return ((left[:, :rank] * values[:rank]) @ right[:rank]).reshape(matrix.shape)
