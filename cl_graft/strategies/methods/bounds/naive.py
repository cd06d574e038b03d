"""Naive fine-tuning: one task after the other, with nothing against forgetting."""

from __future__ import annotations

from avalanche.training.templates import SupervisedTemplate

from cl_graft.strategies import StrategyInputs, register_strategy
from cl_graft.strategies.methods.bounds.model_weights import load_weights_, read_weights

__all__ = ["NaiveFineTuning"]


@register_strategy("naive", family="lower bound", source="Avalanche's Naive")
class NaiveFineTuning:
    """Train every weight on one task after the other."""

    state = staticmethod(read_weights)
    load_state_ = staticmethod(load_weights_)

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return Avalanche's Naive."""
        return inputs.naive()
