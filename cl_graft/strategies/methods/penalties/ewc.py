"""EWC: a quadratic penalty on weights, weighed by the Fisher information of each earlier task.

Avalanche's penalties go over every parameter, those of finished heads too, so finished heads get a
gradient of 0 and are subject to weight decay.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from avalanche.training.plugins import EWCPlugin
from avalanche.training.templates import SupervisedTemplate
from torch import nn

from cl_graft.strategies import StrategyInputs, count_stored, register_strategy, setting

__all__ = ["EWC", "PENALTY_WEIGHT", "EWCOnTrained", "keep_trained"]

PENALTY_WEIGHT = "Weight of the penalty; 0 is Naive."

_Held = TypeVar("_Held")


def keep_trained(model: nn.Module, held: Mapping[str, _Held]) -> dict[str, _Held]:
    """Return what is held of the parameters that train; the penalty on frozen ones is always 0."""
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    return {name: value for name, value in held.items() if name in trained}


class EWCOnTrained(EWCPlugin):
    """Avalanche's `EWCPlugin`, which would also keep what it knows of frozen parameters."""

    def compute_importances(self, model: nn.Module, *args: Any, **kwargs: Any) -> Any:
        """Return the Fisher information of the parameters that train."""
        return keep_trained(model, super().compute_importances(model, *args, **kwargs))

    def after_training_exp(self, strategy: Any, **kwargs: Any) -> None:
        """Keep the Fisher information and a copy of the parameters that train."""
        super().after_training_exp(strategy, **kwargs)
        latest = strategy.clock.train_exp_counter
        self.saved_params[latest] = keep_trained(strategy.model, self.saved_params[latest])


@register_strategy(
    "ewc",
    family="penalty",
    source="Kirkpatrick et al., 2017, https://arxiv.org/abs/1612.00796; Avalanche's EWC, separate",
    adds="two copies of the trained weights",
)
class EWC:
    """Hold weights near their values after each earlier task, by their Fisher information."""

    ewc_lambda: float = setting(
        100.0, PENALTY_WEIGHT, least=0, grid=(1.0, 10.0, 100.0, 1000.0, 10000.0)
    )

    storage_bytes = count_stored(EWCPlugin, "saved_params", "importances")

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return Naive with `EWCOnTrained`."""
        return inputs.naive(EWCOnTrained(self.ewc_lambda))
