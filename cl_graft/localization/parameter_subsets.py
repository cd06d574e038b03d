"""Localizers within a subset of the parameters: biases, norms, weight matrices (SNIP), units.

A budget above the number of such coordinates is reduced to it. A unit of a feed-forward part is a
column of its output matrix with the coupled rows of the matrices before it, as in S2FT (Yang et
al., 2024, https://arxiv.org/abs/2412.06289), where it is drawn at random and has no biases.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from cl_graft.errors import InputError
from cl_graft.grafts.region import Parameters
from cl_graft.localization.gradient_scores import base_gradient
from cl_graft.localization.localizer_inputs import LocalizerInputs
from cl_graft.localization.modules import FeedForward, find_feed_forward
from cl_graft.localization.ranking import rank
from cl_graft.localization.registry import register_localizer
from cl_graft.runtime.seeding import generator

_Named = Mapping[str, nn.Parameter]


def biases(model: nn.Module, parameters: _Named) -> dict[str, nn.Parameter]:
    """Return biases: parameters whose name ends in "bias"."""
    return _select(parameters, lambda name: name.endswith("bias"), "biases")


def layer_norms(model: nn.Module, parameters: _Named) -> dict[str, nn.Parameter]:
    """Return parameters of normalisation layers: modules whose class name ends in "Norm"."""
    inside = {
        id(parameter)
        for module in model.modules()
        if type(module).__name__.endswith("Norm")
        for parameter in module.parameters(recurse=False)
    }
    return _select(parameters, lambda name: id(parameters[name]) in inside, "normalisation layers")


def weight_matrices(model: nn.Module, parameters: _Named) -> dict[str, nn.Parameter]:
    """Return weight matrices: parameters of two or more dimensions."""
    return _select(parameters, lambda name: parameters[name].dim() > 1, "weight matrices")


def feed_forward_matrices(model: nn.Module, parameters: _Named) -> dict[str, nn.Parameter]:
    """Return the matrices of feed-forward parts."""
    names = {name for part in find_feed_forward(model) for name in part.axes}
    kind = "feed-forward parts (linear layers to more features and back, not experts)"
    return _select(parameters, lambda name: name in names, kind)


def _select(
    parameters: _Named, chosen: Callable[[str], bool], kind: str
) -> dict[str, nn.Parameter]:
    selected = {name: parameter for name, parameter in parameters.items() if chosen(name)}
    if not selected:
        raise InputError(
            f"no {kind} among the model's graftable parameters: choose another localizer, such as "
            "random"
        )
    return selected


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


def count_unit(model: nn.Module, parameters: _Named) -> int:
    """Return how many coordinates a unit of a feed-forward part has, the most among the parts."""
    return max(
        sum(parameters[name].numel() // part.width for name in part.axes if name in parameters)
        for part in find_feed_forward(model)
    )


_S2FT = "Yang et al., 2024, https://arxiv.org/abs/2412.06289 (S2FT)"
_UNITS: Any = {
    **{"needs_dense_run": False, "stored_as": "lines"},
    **{"allowed": feed_forward_matrices, "unit": count_unit},
}


@register_localizer(name="columns", source=f"{_S2FT}, with this package's score", **_UNITS)
def columns(inputs: LocalizerInputs, *, k: int, steps: int) -> Parameters:
    """Score feed-forward units by the energy of their summed gradient, mean of (Σ g)² over them."""
    sums = base_gradient(inputs, k=k, steps=steps)

    def energy(part: FeedForward) -> Tensor:
        total, count = torch.zeros(part.width), 0
        for name, axis in part.axes.items():
            by_unit = sums[name].square().sum(1 - axis).reshape(-1, part.width).sum(0)
            total += by_unit.cpu()
            count += sums[name].numel() // part.width
        return total / count

    return _score_units(inputs, energy)


@register_localizer(name="random_columns", source=_S2FT, needs_gradients=False, **_UNITS)
def random_columns(inputs: LocalizerInputs, *, k: int, steps: int) -> Parameters:
    """Score feed-forward units by uniform draws, a function of the seed and the names."""

    def draw(part: FeedForward) -> Tensor:
        return torch.rand(part.width, generator=generator(inputs.seed, "units", *part.axes))

    return _score_units(inputs, draw)


def _score_units(inputs: LocalizerInputs, score: Callable[[FeedForward], Tensor]) -> Parameters:
    """Score the coordinates of a unit alike, and no two units alike, in the units' order."""
    parts = [
        FeedForward(part.width, axes)
        for part in find_feed_forward(inputs.model)
        if (axes := {name: axis for name, axis in part.axes.items() if name in inputs.parameters})
    ]
    values = torch.cat([score(part) for part in parts])
    order = rank({"units": values}, depth=len(values)).order
    positions = torch.empty(len(values))
    positions[order] = torch.arange(len(values), 0, -1, dtype=positions.dtype)
    scores = {}
    for part, ranks in zip(parts, positions.split([part.width for part in parts]), strict=True):
        for name, axis in part.axes.items():
            shape = inputs.parameters[name].shape
            scores[name] = ranks.repeat(shape[axis] // part.width).unsqueeze(1 - axis).expand(shape)
    return {name: scores[name].contiguous() for name in inputs.parameters}
