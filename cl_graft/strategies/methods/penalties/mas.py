"""MAS: a penalty by how much each weight moves the outputs."""

from __future__ import annotations

from avalanche.training.plugins import MASPlugin
from avalanche.training.templates import SupervisedTemplate

from cl_graft.strategies import StrategyInputs, count_stored, register_strategy, setting
from cl_graft.strategies.methods.penalties.ewc import PENALTY_WEIGHT

__all__ = ["MemoryAwareSynapses"]


@register_strategy(
    "mas",
    family="penalty",
    source="Aljundi et al., 2018, https://arxiv.org/abs/1711.09601; Avalanche's MAS",
    adds="the first task two copies of all weights, others nothing",
)
class MemoryAwareSynapses:
    """Hold weights near their latest values, by the gradients of the squared outputs."""

    lambda_reg: float = setting(1.0, PENALTY_WEIGHT, least=0, grid=(0.01, 0.1, 1.0, 10.0))
    alpha: float = setting(0.5, "Weight of older importances.", least=0, most=1)

    storage_bytes = count_stored(MASPlugin, "params", "importance")

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return Naive with Avalanche's `MASPlugin`."""
        return inputs.naive(MASPlugin(lambda_reg=self.lambda_reg, alpha=self.alpha))
