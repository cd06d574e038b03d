"""Adapters: small bottlenecks behind the blocks, one set for every task.

They start at zero, so every task starts at the base.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from avalanche.training.templates import SupervisedTemplate
from torch import Tensor, nn

from cl_graft.errors import InputError
from cl_graft.models import TaskModel, block_stacks
from cl_graft.runtime.seeding import generator
from cl_graft.strategies.method import PICKED_BY_LABEL, StreamShape, setting
from cl_graft.strategies.methods.isolation.own_values import (
    OwnValues,
    load_own_values_,
    optimizer_setting,
    own_value_bytes,
    own_value_state,
    rate_setting,
    train_own_values,
)
from cl_graft.strategies.registry import register_strategy
from cl_graft.strategies.strategy_inputs import StrategyInputs

__all__ = ["Adapters", "Bottleneck", "adapter_parameters", "add_adapters_", "add_two_adapters_"]


_ADAPTER = "own_adapter"

_LAST_LAYERS = (
    ("attention.output.dense", "output.dense"),
    ("attention.out_lin", "ffn.lin2"),
    ("attn.c_proj", "mlp.c_proj"),
    ("self_attn.out_proj", "fc2"),
    ("self_attn.o_proj", "mlp.down_proj"),
)
"""The last layers of the two halves of a block, before what went in is added: of BERT and RoBERTa,
DistilBERT, GPT-2, OPT and BART, Llama."""


class Bottleneck(nn.Module):
    """Add ``up(gelu(down(x)))`` to a block's states; zero at first.

    Args:
        hidden: Size of the states.
        size: Of the bottleneck.
        draws: Draws the weights of `down` from N(0, 0.02²).
    """

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

    Args:
        model: The model.
        size: Of the bottleneck.
        seed: Draws first values.
    """
    draws = generator(seed, "adapters")
    for path in block_stacks(model):
        for block in cast(nn.ModuleList, model.get_submodule(path)):
            adapter = Bottleneck(model.hidden_size, size, draws=draws)
            block.add_module(_ADAPTER, adapter.to(model.device))
            block.register_forward_hook(_behind)


def add_two_adapters_(model: TaskModel, *, size: int, seed: int) -> None:
    """Put a bottleneck behind both halves of every block of a model, in place.

    Behind the last layer of the attention and of the feed-forward part, before what went in is
    added, as in Houlsby et al., 2019 (https://arxiv.org/abs/1902.00751).

    Args:
        model: The model.
        size: Of the bottlenecks.
        seed: Draws first values.

    Raises:
        InputError: If the halves of its blocks have names that are not known here.
    """
    draws = generator(seed, "adapters")
    for path in block_stacks(model):
        for block in cast(nn.ModuleList, model.get_submodule(path)):
            inside = dict(block.named_modules())
            ends = next((ends for ends in _LAST_LAYERS if all(end in inside for end in ends)), None)
            if ends is None:
                raise InputError(
                    f"adapters inside blocks need halves that end in one of {_LAST_LAYERS}, and "
                    f"{type(block).__name__} has none of these; put adapters behind blocks"
                )
            for end in ends:
                adapter = Bottleneck(model.hidden_size, size, draws=draws)
                inside[end].add_module(_ADAPTER, adapter.to(model.device))
                inside[end].register_forward_hook(_behind)


def adapter_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters of a model's adapters by their full names."""
    return {name: p for name, p in model.named_parameters() if f".{_ADAPTER}." in name}


def _behind(block: nn.Module, inputs: Any, output: Any) -> Any:
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
    trains="its own",
    adds="its head and an adapter a block",
    unsupported=PICKED_BY_LABEL,
)
class Adapters:
    """Give every task bottleneck adapters of its own, one behind each block."""

    size: int = setting(4, "Size of the bottlenecks.", least=1, is_size=True)
    optimizer: str = optimizer_setting()
    lr: float = rate_setting(2e-3)

    storage_bytes = staticmethod(own_value_bytes)
    state = staticmethod(own_value_state)
    load_state_ = staticmethod(load_own_values_)

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return Naive with `OwnValues` of the adapters, which are put into the model."""
        add_adapters_(inputs.model.task_model, size=self.size, seed=inputs.seed)
        return train_own_values(inputs, OwnValues(adapter_parameters), optimizer=self.optimizer)

    def task_bytes(self, shape: StreamShape) -> float:
        """Return the bytes of the adapters of all blocks."""
        model = shape.model
        stacks = (cast(nn.ModuleList, model.get_submodule(path)) for path in block_stacks(model))
        numbers = 2 * model.hidden_size * self.size + self.size + model.hidden_size
        return 4 * sum(map(len, stacks)) * numbers
