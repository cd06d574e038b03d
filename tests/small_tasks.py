"""A small task for tests of the phases before region training.

The class is the sign of a product of two inputs; a body of two layers with dropout learns it under
a head of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from cl_graft.grafts.graft import snapshot
from cl_graft.localization.grafting_settings import GraftingSettings
from cl_graft.runtime.seeding import generator, seeded
from cl_graft.training.examples import Examples
from cl_graft.training.fine_tuning_settings import FineTuning
from cl_graft.training.learnable_task import LearnableTask

FAST = FineTuning(steps=30, batch_size=16, lr=0.5, evaluations=2)


class MemoryCache:
    def __init__(self) -> None:
        self.kept: dict[str, tuple[dict[str, Tensor], dict[str, Any]]] = {}
        self.hits: list[str] = []

    def get(self, key: str) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        if key in self.kept:
            self.hits.append(key.split("-")[0])
        return self.kept.get(key)

    def put(self, key: str, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        self.kept[key] = ({n: t.clone() for n, t in tensors.items()}, dict(values))


def make_task() -> LearnableTask:
    draw = generator(0, "learning")
    body = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Dropout(0.1), nn.Linear(32, 8))
    model = nn.ModuleDict({"body": body, "head": nn.Linear(8, 2)})
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draw) * 0.3)
    inputs = torch.randn(200, 8, generator=draw)
    targets = (inputs[:, 0] * inputs[:, 1] > 0).long()
    data = TensorDataset(inputs, targets)
    named = dict(model.named_parameters())
    return LearnableTask(
        model=model,
        parameters={n: p for n, p in named.items() if n.startswith("body")},
        head={n: p for n, p in named.items() if n.startswith("head")},
        forward=lambda x: model["head"](model["body"](x)),
        criterion=nn.functional.cross_entropy,
        score=lambda logits, y: float((logits.argmax(1) == y).float().mean()),
        train=Examples(data, range(150)),
        dev=Examples(data, range(150, 200)),
        device=torch.device("cpu"),
        content="xor",
        head_module=model["head"],
    )


BLOCKS = 4


def block_task(blocks: int = BLOCKS) -> LearnableTask:
    """The small task under a model of some blocks, each with a layer and a feed-forward part."""
    small = make_task()
    with seeded(0, "blocks"):
        own = [
            nn.Sequential(
                nn.Sequential(nn.Linear(8, 8), nn.Tanh()),
                nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8)),
            )
            for _ in range(blocks)
        ]
    model = nn.ModuleDict({"blocks": nn.ModuleList(own), "head": small.model["head"]})

    def forward(x: Tensor) -> Tensor:
        for block in own:
            x = x + block(x)
        return model["head"](x)

    named = dict(model.named_parameters())
    return replace(
        small,
        model=model,
        parameters={n: p for n, p in named.items() if n.startswith("blocks")},
        forward=forward,
    )


def settings(**changes: Any) -> GraftingSettings:
    values = {"density": 0.05, "mask_steps": 4, "mask_batch": 32}
    return GraftingSettings(**{**values, "fine_tuning": FAST, **changes})


def moved_model(*, size: int = 200) -> tuple[nn.Module, dict[str, nn.Parameter], Any]:
    """A linear model whose weights are all 1 above their base, its parameters, and the base."""
    with seeded(0, "mixout"):
        model = nn.Linear(size, 3)
    base = snapshot(dict(model.named_parameters()))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    return model, dict(model.named_parameters()), base
