"""Sequential LoRA: one LoRA for all tasks, trained by one after the other."""

from __future__ import annotations

from avalanche.training.templates import SupervisedTemplate

from cl_graft.strategies import StrategyInputs, register_strategy
from cl_graft.strategies.methods.isolation.lora_layers import (
    LORA_PAPER,
    add_lora_,
    alpha_setting,
    find_lora,
    rank_setting,
)
from cl_graft.strategies.methods.isolation.own_values import (
    TrainOnly,
    optimizer_setting,
    rate_setting,
    train_own_values,
)

__all__ = ["SequentialLoRA"]


@register_strategy(
    "sequential_lora",
    family="lower bound",
    source=f"{LORA_PAPER}, one for all tasks, one after the other",
    requires="peft",
)
class SequentialLoRA:
    """Train one LoRA on one task after the other, with nothing against forgetting."""

    rank: int = rank_setting(is_size=False)
    alpha: int = alpha_setting()
    optimizer: str = optimizer_setting()
    lr: float = rate_setting(2e-3)

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return Naive with `TrainOnly` of the LoRA, which is put into the model."""
        add_lora_(inputs.model.task_model, rank=self.rank, alpha=self.alpha, seed=inputs.seed)
        return train_own_values(inputs, TrainOnly(find_lora), optimizer=self.optimizer)
