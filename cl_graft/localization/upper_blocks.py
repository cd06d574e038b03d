"""The part of a model that a region may reach, and what a localizer may choose of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from cl_graft.grafts.blocks import Layers, select_upper
from cl_graft.grafts.region import Layout, Region
from cl_graft.localization.grafting_settings import GraftingSettings
from cl_graft.localization.registry import Localizer, Score, find_localizer
from cl_graft.training.learnable_task import LearnableTask


def restrict(task: LearnableTask, settings: GraftingSettings) -> LearnableTask:
    """Return the task with only the graftable parameters of the blocks in `settings.layers`.

    So a localizer computes scores and gradients of these alone, and moves no others.
    """
    if settings.layers == "all":
        return task
    return replace(task, parameters=select_upper(task.model, task.parameters, settings.layers))


def allowed_coordinates(
    model: nn.Module,
    parameters: Mapping[str, nn.Parameter],
    *,
    localizer: str | Score | Localizer,
    layers: Layers,
) -> Region | None:
    """Return the coordinates that a localizer may choose; None means all.

    It needs no values, so it also tells beforehand whether settings fit a model.

    Args:
        model: The model, which may be of fake tensors.
        parameters: Graftable parameters of the model, by name.
        localizer: The localizer, its name, or a score function.
        layers: Upper blocks that a region may reach.

    Raises:
        InputError: If the model has not as many blocks, or no parameter that may be chosen.
    """
    allowed = find_localizer(localizer).allowed
    part = select_upper(model, parameters, layers)
    layout, inside = Layout.of(parameters), Layout.of(part)
    if allowed is not None:
        return Region(layout, number_in(layout, inside, allowed(model, part).index))
    if layers == "all":
        return None
    return Region(layout, number_in(layout, inside, torch.arange(inside.total)))


def number_in(layout: Layout, part: Layout, numbers: Tensor) -> Tensor:
    """Translate coordinate numbers of the layout of a part into those of the whole layout."""
    if part == layout:
        return numbers
    starts = dict(zip(layout.names, layout.starts, strict=False))
    moved = [starts[name] - start for name, start in zip(part.names, part.starts, strict=False)]
    places = torch.searchsorted(torch.tensor(part.starts[1:]), numbers, right=True)
    return numbers + torch.tensor(moved)[places]
