"""LoRA: a low-rank update of the linear layers for each task."""

from __future__ import annotations

from avalanche.training.templates import SupervisedTemplate

from cl_graft.strategies import StrategyInputs, register_strategy
from cl_graft.strategies.method import PICKED_BY_LABEL, StreamShape
from cl_graft.strategies.methods.isolation.lora_layers import (
    LORA_PAPER,
    add_lora_,
    alpha_setting,
    find_linear_layers,
    find_lora,
    rank_setting,
)
from cl_graft.strategies.methods.isolation.own_values import (
    OwnValues,
    OwnValuesMethod,
    optimizer_setting,
    rate_setting,
    train_own_values,
)

__all__ = ["LoRA"]


@register_strategy(
    "lora",
    family="isolation",
    source=f"{LORA_PAPER}, one a task",
    trains="its own",
    adds="its head and a LoRA",
    unsupported=PICKED_BY_LABEL,
    requires="peft",
)
class LoRA(OwnValuesMethod):
    """Give every task a LoRA of its own on the base."""

    rank: int = rank_setting()
    alpha: int = alpha_setting()
    optimizer: str = optimizer_setting()
    lr: float = rate_setting(2e-3)

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return Naive with `OwnValues` of the LoRA, which is put into the model."""
        add_lora_(inputs.model.task_model, rank=self.rank, alpha=self.alpha, seed=inputs.seed)
        return train_own_values(inputs, OwnValues(find_lora), optimizer=self.optimizer)

    def task_bytes(self, shape: StreamShape) -> float:
        """Return the bytes of A and B of all layers."""
        layers = find_linear_layers(shape.model).values()
        return 4 * self.rank * sum(sum(layer.get_parameter("weight").shape) for layer in layers)
