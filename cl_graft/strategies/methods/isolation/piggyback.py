"""Piggyback: a mask for each task on the frozen weights of the base."""

from __future__ import annotations

import torch
from avalanche.training.templates import SupervisedTemplate

from cl_graft.strategies import StrategyInputs, count_stored, register_strategy
from cl_graft.strategies.method import PICKED_BY_LABEL, StreamShape
from cl_graft.strategies.methods.isolation.masked_matrices import (
    MaskedMatrices,
    choose_above,
    count_mask_bytes,
)
from cl_graft.strategies.methods.isolation.own_values import (
    optimizer_setting,
    rate_setting,
    train_own_values,
)

__all__ = ["Piggyback"]


_START, _THRESHOLD = 1e-2, 5e-3
"""First scores and threshold: at first every weight is used."""


@register_strategy(
    "piggyback",
    family="isolation",
    source="Mallya et al., 2018, https://arxiv.org/abs/1801.06519",
    adds="its head and a bit for each weight of the matrices",
    unsupported=PICKED_BY_LABEL,
)
class Piggyback:
    """Give every task a mask on the frozen base: a weight is used where its score is high."""

    optimizer: str = optimizer_setting()
    lr: float = rate_setting(3e-4, grid=(1e-4, 3e-4, 1e-3))

    storage_bytes = count_stored(MaskedMatrices, "masks")

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return Naive with `MaskedMatrices`."""
        plugin = MaskedMatrices(
            inputs.model.task_model,
            rule=choose_above(_THRESHOLD),
            start=lambda weight: torch.full_like(weight, _START),
        )
        return train_own_values(inputs, plugin, optimizer=self.optimizer)

    def task_bytes(self, shape: StreamShape) -> float:
        """Return the bytes of the masks."""
        return count_mask_bytes(shape)
