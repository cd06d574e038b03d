"""From scratch: every task begins at the base again, and earlier tasks are forgotten."""

from __future__ import annotations

from typing import Any

from avalanche.training.plugins import FromScratchTrainingPlugin
from avalanche.training.templates import SupervisedTemplate

from cl_graft.strategies import StrategyInputs, register_strategy

__all__ = ["FromScratch"]


@register_strategy(
    "from_scratch",
    family="lower bound",
    source="Avalanche's FromScratchTraining: every task begins at the base again",
)
class FromScratch:
    """Train every weight from the base again for every task."""

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return Naive with Avalanche's `FromScratchTrainingPlugin`."""
        plugin: Any = FromScratchTrainingPlugin()
        return inputs.naive(plugin)
