"""WSN: winning subnetworks, whose weights train where no earlier task uses them."""

from __future__ import annotations

import torch
from avalanche.training.templates import SupervisedTemplate

from cl_graft.strategies.method import PICKED_BY_LABEL, StreamShape, setting
from cl_graft.strategies.methods.isolation.masked_matrices import (
    MaskedMatrices,
    choose_largest,
    count_mask_bytes,
    find_matrices,
)
from cl_graft.strategies.methods.isolation.own_values import (
    optimizer_setting,
    rate_setting,
    train_own_values,
)
from cl_graft.strategies.registry import register_strategy
from cl_graft.strategies.stored_bytes import count_bytes, count_stored
from cl_graft.strategies.strategy_inputs import StrategyInputs

__all__ = ["WSN"]


@register_strategy(
    "wsn",
    family="isolation",
    source="Kang et al., 2022, https://proceedings.mlr.press/v162/kang22b.html",
    adds="its head and a bit for each weight of the matrices; the first task the scores",
    unsupported=PICKED_BY_LABEL,
)
class WSN:
    """Give every task the weights with the largest scores, and train those that are still free."""

    share: float = setting(
        0.5, "Share of each matrix that is used.", least=0, most=1, grid=(0.3, 0.5, 0.7)
    )
    optimizer: str = optimizer_setting()
    lr: float = rate_setting(3e-4, grid=(1e-4, 3e-4))

    storage_bytes = count_stored(MaskedMatrices, "masks", "scores")

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return Naive with `MaskedMatrices` that train weights, too."""
        # The paper's code ranks |scores|, so a weight whose score went far below 0 comes back.
        plugin = MaskedMatrices(
            inputs.model.task_model,
            rule=choose_largest(self.share),
            start=torch.abs,
            absolute=True,
            trains_weights=True,
        )
        return train_own_values(inputs, plugin, optimizer=self.optimizer)

    def task_bytes(self, shape: StreamShape) -> float:
        """Return the bytes of the masks and, shared by all tasks, of the scores."""
        scores = count_bytes([weight for _, weight in find_matrices(shape.model)])
        return count_mask_bytes(shape) + scores / shape.tasks
