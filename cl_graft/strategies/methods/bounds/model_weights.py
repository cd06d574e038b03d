"""The state of methods that know nothing but the model's weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from avalanche.training.templates import SupervisedTemplate
from torch import Tensor

from cl_graft.grafts.graft import load_

__all__ = ["load_weights_", "read_weights"]


def read_weights(strategy: SupervisedTemplate) -> dict[str, Tensor]:
    """Return the weights of a strategy's model."""
    return {name: p.detach() for name, p in strategy.model.named_parameters()}


def load_weights_(
    strategy: SupervisedTemplate, experiences: Sequence[Any], tensors: Mapping[str, Tensor]
) -> None:
    """Give a strategy's model these weights."""
    load_(strategy.model, tensors)
