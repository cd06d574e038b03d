"""EWC: a quadratic penalty on weights, weighed by the Fisher information of each earlier task.

Avalanche's penalties go over every parameter, those of finished heads too, so finished heads get a
gradient of 0 and are subject to weight decay.
"""

from __future__ import annotations

from avalanche.training.plugins import EWCPlugin
from avalanche.training.templates import SupervisedTemplate

from cl_graft.strategies import StrategyInputs, count_stored, register_strategy, setting

__all__ = ["EWC", "PENALTY_WEIGHT"]

PENALTY_WEIGHT = "Weight of the penalty; 0 is Naive."


@register_strategy(
    "ewc",
    family="penalty",
    source="Kirkpatrick et al., 2017, https://arxiv.org/abs/1612.00796; Avalanche's EWC, separate",
    adds="two copies of all weights",
)
class EWC:
    """Hold weights near their values after each earlier task, by their Fisher information."""

    ewc_lambda: float = setting(
        100.0, PENALTY_WEIGHT, least=0, grid=(1.0, 10.0, 100.0, 1000.0, 10000.0)
    )

    storage_bytes = count_stored(EWCPlugin, "saved_params", "importances")

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return Naive with Avalanche's `EWCPlugin`."""
        return inputs.naive(EWCPlugin(self.ewc_lambda))
