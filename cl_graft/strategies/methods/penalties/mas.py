"""MAS: a penalty by how much each weight moves the outputs."""

from __future__ import annotations

from typing import Any

from avalanche.training.plugins import MASPlugin
from avalanche.training.templates import SupervisedTemplate

from cl_graft.strategies import StrategyInputs, count_stored, register_strategy, setting
from cl_graft.strategies.methods.penalties.ewc import PENALTY_WEIGHT, keep_trained

__all__ = ["MASOnTrained", "MemoryAwareSynapses"]


class MASOnTrained(MASPlugin):
    """Avalanche's `MASPlugin`, which would also keep what it knows of frozen parameters."""

    def after_training_exp(self, strategy: Any, **kwargs: Any) -> None:
        """Keep importances and a copy of the parameters that train."""
        super().after_training_exp(strategy, **kwargs)
        self.params = keep_trained(strategy.model, self.params or {})
        self.importance = keep_trained(strategy.model, self.importance or {})


@register_strategy(
    "mas",
    family="penalty",
    source="Aljundi et al., 2018, https://arxiv.org/abs/1711.09601; Avalanche's MAS",
    adds="the first task two copies of the trained weights, others nothing",
)
class MemoryAwareSynapses:
    """Hold weights near their latest values, by the gradients of the squared outputs."""

    lambda_reg: float = setting(1.0, PENALTY_WEIGHT, least=0, grid=(0.01, 0.1, 1.0, 10.0))
    alpha: float = setting(0.5, "Weight of older importances.", least=0, most=1)

    storage_bytes = count_stored(MASPlugin, "params", "importance")

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return Naive with `MASOnTrained`."""
        return inputs.naive(MASOnTrained(lambda_reg=self.lambda_reg, alpha=self.alpha))
