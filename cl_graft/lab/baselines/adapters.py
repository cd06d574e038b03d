"""Adapters: small bottlenecks behind the blocks, one set for every task.

They start at zero, so every task starts at the base.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from avalanche.training.templates import SupervisedTemplate
from torch import Tensor, nn

from cl_graft.lab.baselines.own_values import (
    OwnValues,
    OwnValuesMethod,
    optimizer_setting,
    rate_setting,
    train_own_values,
)
from cl_graft.models import TaskModel, block_stacks
from cl_graft.runtime.seeding import generator
from cl_graft.strategies import StrategyInputs, register_strategy, setting
from cl_graft.strategies.method import PICKED_BY_LABEL, StreamShape

_ADAPTER = "own_adapter"


class Bottleneck(nn.Module):
    """Add ``up(gelu(down(x)))`` to a block's states; zero at first."""

    def __init__(self, hidden: int, size: int, *, draws: torch.Generator) -> None:
        super().__init__()
        self.down = nn.utils.skip_init(nn.Linear, hidden, size)
        self.up = nn.utils.skip_init(nn.Linear, size, hidden)
        nn.init.normal_(cast(Tensor, self.down.weight), 0.0, 0.02, generator=draws)
        for rest in (self.down.bias, self.up.weight, self.up.bias):
            nn.init.zeros_(cast(Tensor, rest))

    def forward(self, states: Tensor) -> Tensor:
        """Return states of the same shape."""
        return states + self.up(nn.functional.gelu(self.down(states)))


def add_adapters_(model: TaskModel, *, size: int, seed: int) -> None:
    """Put a bottleneck behind every block of a model, in place.

    One behind each block, as Pfeiffer et al. found enough (https://arxiv.org/abs/2005.00247).
    """
    draws = generator(seed, "adapters")
    for path in block_stacks(model):
        for block in cast(nn.ModuleList, model.get_submodule(path)):
            add_adapter_(block, Bottleneck(model.hidden_size, size, draws=draws).to(model.device))


def add_adapter_(module: nn.Module, adapter: Bottleneck) -> None:
    """Pass the states that a module returns through an adapter, a part of the module."""
    module.add_module(_ADAPTER, adapter)
    module.register_forward_hook(_pass_through)


def find_adapters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters of a model's adapters by their full names."""
    return {name: p for name, p in model.named_parameters() if f".{_ADAPTER}." in name}


def _pass_through(block: nn.Module, inputs: Any, output: Any) -> Any:
    """Pass a block's states through its adapter; a block may return more beside them."""
    adapter = block.get_submodule(_ADAPTER)
    if isinstance(output, tuple):
        return (adapter(output[0]), *output[1:])
    return adapter(output)


@register_strategy(
    "adapters",
    family="isolation",
    source="Houlsby et al., 2019, https://arxiv.org/abs/1902.00751; one behind each block as "
    "Pfeiffer et al., 2021",
    trains="per_task",
    adds="its head and an adapter a block",
    unsupported=PICKED_BY_LABEL,
)
class Adapters(OwnValuesMethod):
    """Give every task bottleneck adapters of its own, one behind each block."""

    size: int = setting(4, "Size of the bottlenecks.", min_value=1, is_size=True)
    optimizer: str = optimizer_setting()
    lr: float = rate_setting(2e-3)

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return Naive with `OwnValues` of the adapters, which are put into the model."""
        add_adapters_(inputs.model.task_model, size=self.size, seed=inputs.seed)
        return train_own_values(inputs, OwnValues(find_adapters), optimizer=self.optimizer)

    def task_bytes(self, shape: StreamShape) -> float:
        """Return the bytes of the adapters of all blocks."""
        model = shape.model
        stacks = (cast(nn.ModuleList, model.get_submodule(path)) for path in block_stacks(model))
        numbers = 2 * model.hidden_size * self.size + self.size + model.hidden_size
        return 4 * sum(map(len, stacks)) * numbers
