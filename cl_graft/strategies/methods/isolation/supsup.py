"""SupSup: a subnetwork of the frozen base for every task."""

from __future__ import annotations

import torch
from avalanche.training.templates import SupervisedTemplate

from cl_graft.strategies import StrategyInputs, count_stored, register_strategy, setting
from cl_graft.strategies.method import PICKED_BY_LABEL, StreamShape
from cl_graft.strategies.methods.isolation.masked_matrices import (
    MaskedMatrices,
    choose_largest,
    count_mask_bytes,
)
from cl_graft.strategies.methods.isolation.own_values import (
    optimizer_setting,
    rate_setting,
    train_own_values,
)

__all__ = ["SupSup"]


@register_strategy(
    "supsup",
    family="isolation",
    source="Wortsman et al., 2020, https://arxiv.org/abs/2006.14769; on a pretrained base",
    adds="its head and a bit for each weight of the matrices",
    unsupported=PICKED_BY_LABEL,
)
class SupSup:
    """Give every task the weights of the frozen base whose scores are largest."""

    share: float = setting(
        0.9, "Share of each matrix that is used.", least=0, most=1, grid=(0.7, 0.9)
    )
    optimizer: str = optimizer_setting()
    lr: float = rate_setting(1e-3, grid=(3e-4, 1e-3, 3e-3))

    storage_bytes = count_stored(MaskedMatrices, "masks")

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return Naive with `MaskedMatrices`, whose scores start at the weights' magnitudes."""
        plugin = MaskedMatrices(
            inputs.model.task_model, rule=choose_largest(self.share), start=torch.abs
        )
        return train_own_values(inputs, plugin, optimizer=self.optimizer)

    def task_bytes(self, shape: StreamShape) -> float:
        """Return the bytes of the masks."""
        return count_mask_bytes(shape)
