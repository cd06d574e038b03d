"""Online EWC: one running Fisher information for all earlier tasks."""

from __future__ import annotations

from avalanche.training.templates import SupervisedTemplate

from cl_graft.strategies import StrategyInputs, count_stored, register_strategy, setting
from cl_graft.strategies.methods.penalties.ewc import PENALTY_WEIGHT, EWCOnTrained

__all__ = ["OnlineEWC"]


@register_strategy(
    "ewc_online",
    family="penalty",
    source="Schwarz et al., 2018, https://arxiv.org/abs/1805.06370; Avalanche's EWC, online",
    adds="the first task two copies of the trained weights, others nothing",
)
class OnlineEWC:
    """Hold weights near their latest values, by an average of all Fisher informations."""

    ewc_lambda: float = setting(
        100.0, PENALTY_WEIGHT, least=0, grid=(1.0, 10.0, 100.0, 1000.0, 10000.0)
    )
    decay_factor: float = setting(0.9, "Weight of older importances.", least=0, most=1)

    storage_bytes = count_stored(EWCOnTrained, "saved_params", "importances")

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return Naive with `EWCOnTrained`, online."""
        plugin = EWCOnTrained(self.ewc_lambda, mode="online", decay_factor=self.decay_factor)
        return inputs.naive(plugin)
