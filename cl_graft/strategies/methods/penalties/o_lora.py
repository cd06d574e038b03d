"""O-LoRA: a LoRA a task, all added up, each pushed to be orthogonal to earlier ones."""

from __future__ import annotations

from typing import Any

import torch
from avalanche.training.templates import SupervisedTemplate
from torch import Tensor

from cl_graft.runtime.seeding import derive, seeded
from cl_graft.strategies import StrategyInputs, count_stored, register_strategy, setting
from cl_graft.strategies.heads import unwrap_model
from cl_graft.strategies.method import StreamShape
from cl_graft.strategies.methods.isolation.lora_layers import (
    add_lora_,
    alpha_setting,
    find_linear_layers,
    find_lora,
    find_lora_layers,
    rank_setting,
)
from cl_graft.strategies.methods.isolation.own_values import (
    TrainOnly,
    optimizer_setting,
    rate_setting,
    train_own_values,
)
from cl_graft.training.linear_layers import is_conv1d

__all__ = ["OLoRA", "OrthogonalLoRA"]


class OrthogonalLoRA(TrainOnly, supports_distributed=False):
    """Give every task a LoRA whose A is pushed to be orthogonal to those of earlier tasks.

    O-LoRA (Wang et al., 2023, https://arxiv.org/abs/2310.14152): the loss gets
    ``weight · Σ |A_i Aᵀ|`` over earlier tasks i and layers. All tasks are answered by the base with
    all LoRAs added up, so a finished one is merged into the weights and only its A is kept. Earlier
    answers change as far as the subspaces are not orthogonal.

    Runs at: before_training_exp, before_backward, after_training_exp.

    Args:
        weight: Weight of the penalty; 0 adds LoRAs up one after the other.
        seed: Seed of each task's A.

    Attributes:
        bases: Matrices A of earlier tasks, each (rank, inputs), by layer.
    """

    def __init__(self, *, weight: float, seed: int) -> None:
        super().__init__(find_lora)
        self.weight = weight
        self.seed = seed
        self.bases: dict[str, list[Tensor]] = {}

    def before_training_exp(self, strategy: Any, **kwargs: Any) -> None:
        """Start a new LoRA at zero."""
        super().before_training_exp(strategy, **kwargs)
        label = int(strategy.experience.task_label)
        with seeded(derive(self.seed, label), "o_lora"):
            for _, layer in find_lora_layers(unwrap_model(strategy.model)):
                layer.reset_lora_parameters("default", True)

    def before_backward(self, strategy: Any, **kwargs: Any) -> None:
        """Add the penalty."""
        if not self.bases:
            return
        overlap = torch.zeros((), device=strategy.device)
        for name, layer in find_lora_layers(unwrap_model(strategy.model)):
            now = layer.lora_A["default"].weight
            overlap = overlap + sum((now @ then.T).abs().sum() for then in self.bases[name])
        strategy.loss = strategy.loss + self.weight * overlap

    @torch.no_grad()
    def after_training_exp(self, strategy: Any, **kwargs: Any) -> None:
        """Add the LoRA to the weights, and keep its A."""
        for name, layer in find_lora_layers(unwrap_model(strategy.model)):
            now = layer.lora_A["default"].weight
            self.bases.setdefault(name, []).append(now.detach().clone())
            layer.get_base_layer().weight += layer.get_delta_weight("default")
            layer.lora_B["default"].weight.zero_()


@register_strategy(
    "o_lora",
    family="penalty",
    source="Wang et al., 2023, https://arxiv.org/abs/2310.14152; on peft's LoRA",
    adds="its head and the A of its LoRA",
    requires="peft",
)
class OLoRA:
    """Learn every task in a low-rank subspace, nearly orthogonal to those of earlier tasks."""

    rank: int = rank_setting()
    alpha: int = alpha_setting()
    optimizer: str = optimizer_setting()
    lr: float = rate_setting(2e-3)
    orthogonality: float = setting(
        0.5, "Weight of the overlap with earlier tasks.", least=0, grid=(0.5, 5.0)
    )

    storage_bytes = count_stored(OrthogonalLoRA, "bases")

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return Naive with `OrthogonalLoRA`, on a model with a LoRA."""
        add_lora_(inputs.model.task_model, rank=self.rank, alpha=self.alpha, seed=inputs.seed)
        plugin = OrthogonalLoRA(weight=self.orthogonality, seed=inputs.seed)
        return train_own_values(inputs, plugin, optimizer=self.optimizer)

    def task_bytes(self, shape: StreamShape) -> float:
        """Return the bytes of A of all layers."""
        inputs = (
            layer.get_parameter("weight").shape[0 if is_conv1d(layer) else 1]
            for layer in find_linear_layers(shape.model).values()
        )
        return 4 * self.rank * sum(inputs)
