"""Parameters of one kind, and localizers that may choose these only: biases, normalisation layers.

BitFit tunes all biases, those of LayerNorms included (Ben Zaken et al., 2022,
https://arxiv.org/abs/2106.10199); with a budget below their number, those with the largest
gradients are taken. A budget above their number is reduced to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import nn

from cl_graft.errors import InputError
from cl_graft.grafts.region import Layout, Region
from cl_graft.localization.base_gradient import base_gradient
from cl_graft.localization.registry import register_localizer

__all__ = ["biases", "layer_norms", "weight_matrices"]


def biases(model: nn.Module, parameters: Mapping[str, nn.Parameter]) -> Region:
    """Return the coordinates of biases: parameters whose name ends in "bias".

    Raises:
        InputError: If there are none.
    """
    del model
    return _coordinates(parameters, lambda name: name.endswith("bias"), "biases")


def layer_norms(model: nn.Module, parameters: Mapping[str, nn.Parameter]) -> Region:
    """Return the coordinates of normalisation layers: modules whose class name ends in "Norm".

    Raises:
        InputError: If there are none.
    """
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
    """Return the coordinates of weight matrices: parameters of two or more dimensions.

    Raises:
        InputError: If there are none.
    """
    del model
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
