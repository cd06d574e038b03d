"""Rules: only parameters of a kind may be chosen, whatever the task.

BitFit tunes all biases, those of LayerNorms included (Ben Zaken et al., 2022,
https://arxiv.org/abs/2106.10199); with a budget below their number, the steepest of them are
taken. A budget above it is cut down to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from cl_graft.errors import InputError
from cl_graft.grafts.region import Layout, Region
from cl_graft.localization.base_gradient import base_gradient
from cl_graft.localization.localizer_inputs import LocalizerInputs

__all__ = ["biases", "layer_norms", "steepest_biases", "steepest_layer_norms"]


def biases(model: nn.Module, parameters: Mapping[str, nn.Parameter]) -> Region:
    """Return the coordinates of biases: parameters whose name ends in "bias".

    Raises:
        InputError: If there are none.
    """
    del model
    return _those(parameters, lambda name: name.endswith("bias"), "biases")


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
    return _those(parameters, lambda name: id(parameters[name]) in inside, "normalisation layers")


def steepest_biases(
    inputs: LocalizerInputs, *, k: int, steps: int, depth: int
) -> dict[str, Tensor]:
    """Score coordinates by their summed gradient at the base, |Σ g|; only biases are chosen."""
    return base_gradient(inputs, k=k, steps=steps, depth=depth)


def steepest_layer_norms(
    inputs: LocalizerInputs, *, k: int, steps: int, depth: int
) -> dict[str, Tensor]:
    """Score coordinates by their summed gradient at the base, |Σ g|; only norms are chosen."""
    return base_gradient(inputs, k=k, steps=steps, depth=depth)


def _those(
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
