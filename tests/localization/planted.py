"""A small localization task with a known answer.

Two layers on random inputs; fine-tuning moved every weight a little at random and a few planted
ones a lot, and only the planted ones matter to the loss.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from cl_graft.grafts.graft import load_, snapshot
from cl_graft.grafts.region import Layout, Region
from cl_graft.localization import LocalizerInputs
from cl_graft.runtime.batching import BatchOrder
from cl_graft.runtime.seeding import generator

PLANTED = 12

FEW = ("movement", "path_integral", "learned_mask", "base_gradient", "fish", "bias_only")
"""Localizers that look at different things, for what the fast suite shows of all of them."""


def planted_inputs(
    *, seed: int = 0, dtype: torch.dtype = torch.float32
) -> tuple[LocalizerInputs, Region]:
    draw = generator(seed, "planted")
    model = nn.Sequential(nn.Linear(16, 24), nn.Tanh(), nn.Linear(24, 3)).to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draw).to(dtype) * 0.3)
    parameters = dict(model.named_parameters())
    base = snapshot(parameters)
    layout = Layout.of(base)
    # Planted coordinates sit in the last layer's weight, where they act on the logits directly.
    start = layout.starts[2]
    planted = Region.of(layout, start + torch.randperm(72, generator=draw)[:PLANTED])
    tuned = {}
    masks = planted.masks()
    for name, value in base.items():
        noise = torch.randn(value.shape, generator=draw) * 0.02
        strong = torch.randn(value.shape, generator=draw).sign() * 2.0
        tuned[name] = value + torch.where(masks[name], strong, noise).to(dtype)
    x = torch.randn(256, 16, generator=draw).to(dtype)
    with torch.no_grad():
        load_(model, tuned)
        targets = model(x).argmax(1)
        load_(model, base)
    order = BatchOrder(256, 64, seed, "planted")

    def losses(step: int) -> list[Callable[[], Tensor]]:
        places = order(step)
        return [
            lambda part=part: nn.functional.cross_entropy(model(x[part]).float(), targets[part])
            for part in (places[:32], places[32:])
        ]

    def row_losses(step: int) -> list[Callable[[], Tensor]]:
        return [
            lambda row=row: nn.functional.cross_entropy(model(x[row]).float(), targets[row])
            for row in order(step)
        ]

    def accuracy() -> float:
        with torch.no_grad():
            return float((model(x).argmax(1) == targets).float().mean())

    # Any numbers do for a path: what a dense run gathers is tested where it runs.
    path = {name: torch.randn(value.shape, generator=draw) for name, value in base.items()}
    inputs = LocalizerInputs(
        model, parameters, tuned, losses, accuracy, accuracy, seed, path, row_losses=row_losses
    )
    return inputs, planted
