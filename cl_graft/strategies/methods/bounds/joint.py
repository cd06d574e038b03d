"""Joint training: all tasks are learned at once, before the first is evaluated."""

from __future__ import annotations

from avalanche.training.templates import SupervisedTemplate

from cl_graft.strategies import StrategyInputs, register_strategy
from cl_graft.strategies.methods.bounds.mixed_rows import MixedRows
from cl_graft.strategies.methods.bounds.model_weights import load_weights_, read_weights

__all__ = ["Joint"]


@register_strategy(
    "joint",
    family="upper bound",
    source="as Avalanche's JointTraining: on the rows of all tasks at once, before the first",
    rows="all tasks",
    kinds="one",
)
class Joint:
    """Train every weight on the rows of all tasks, with the steps of all, when the first comes."""

    state = staticmethod(read_weights)
    load_state_ = staticmethod(load_weights_)

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return Naive with `MixedRows`, on a model that has all heads."""
        for experience in inputs.stream.benchmark.train_stream:
            inputs.model.adaptation(experience)
        return inputs.naive(MixedRows(inputs, so_far=False))
