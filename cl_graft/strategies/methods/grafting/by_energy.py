"""Grafting that picks the task whose answer has the least energy."""

from __future__ import annotations

from avalanche.training.templates import SupervisedTemplate

from cl_graft.inference.routing_rules import least_energy
from cl_graft.strategies.methods.grafting.region_loop import keep_bank_
from cl_graft.strategies.methods.grafting.routed_loop import build_routed, register_routed
from cl_graft.strategies.routing import AnswerRouter
from cl_graft.strategies.strategy_inputs import StrategyInputs

__all__ = ["GraftingByEnergy"]


@register_routed(
    "grafting_by_energy",
    source="the answer with the least energy: Liu et al., 2020, https://arxiv.org/abs/2010.03759",
)
class GraftingByEnergy:
    """Learn as grafting does, let every task answer, and keep the answer of the least energy."""

    load_state_ = staticmethod(keep_bank_)

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return grafting with a router by answers."""
        return build_routed(inputs, AnswerRouter(least_energy))
