"""Cumulative training: every task trains on the rows of all tasks so far."""

from __future__ import annotations

from avalanche.training.templates import SupervisedTemplate

from cl_graft.strategies import StrategyInputs, find_plugin, register_strategy
from cl_graft.strategies.methods.bounds.mixed_rows import MixedRows
from cl_graft.strategies.methods.bounds.model_weights import load_weights_, read_weights

__all__ = ["Cumulative"]


@register_strategy(
    "cumulative",
    family="upper bound",
    source="as Avalanche's Cumulative: on the rows of all tasks so far",
    adds="its head and all its rows",
    rows="tasks so far",
    kinds="one",
)
class Cumulative:
    """Train every weight on the rows of all tasks so far, with the steps of all of them."""

    state = staticmethod(read_weights)
    load_state_ = staticmethod(load_weights_)

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return Naive with `MixedRows`."""
        return inputs.naive(MixedRows(inputs, so_far=True))

    @staticmethod
    def storage_bytes(strategy: SupervisedTemplate) -> int:
        """Return the bytes of the rows of all tasks so far."""
        plugin = find_plugin(strategy, MixedRows)
        return plugin.stored_bytes(strategy.clock.train_exp_counter)
