"""BitFit: the biases of the blocks, with values of their own for every task."""

from __future__ import annotations

from avalanche.training.templates import SupervisedTemplate
from torch import nn

from cl_graft.errors import InputError
from cl_graft.models import graftable_parameters
from cl_graft.strategies import StrategyInputs, count_bytes, register_strategy
from cl_graft.strategies.method import PICKED_BY_LABEL, StreamShape
from cl_graft.strategies.methods.isolation.own_values import (
    OwnValues,
    OwnValuesMethod,
    optimizer_setting,
    rate_setting,
    train_own_values,
)

__all__ = ["BitFit", "find_biases"]


def find_biases(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the biases of a model's blocks, those of LayerNorms among them.

    Raises:
        InputError: If there are none.
    """
    chosen = graftable_parameters(model)
    found = {name: p for name, p in chosen.items() if name.rpartition(".")[2] == "bias"}
    if not found:
        raise InputError("strategy 'bitfit' trains biases, and this model has none")
    return found


@register_strategy(
    "bitfit",
    family="isolation",
    source="Ben Zaken et al., 2022, https://arxiv.org/abs/2106.10199; biases of its own for each "
    "task",
    trains="its own",
    adds="its head and all biases",
    unsupported=PICKED_BY_LABEL,
)
class BitFit(OwnValuesMethod):
    """Give every task its own values of the biases; they start at those of the base."""

    optimizer: str = optimizer_setting()
    lr: float = rate_setting(2e-3)

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return Naive with `OwnValues` of the biases."""
        return train_own_values(inputs, OwnValues(find_biases), optimizer=self.optimizer)

    def check_stream(self, shape: StreamShape) -> None:
        """Refuse a model without biases."""
        find_biases(shape.model)

    def task_bytes(self, shape: StreamShape) -> float:
        """Return the bytes of the biases."""
        return count_bytes(find_biases(shape.model))
