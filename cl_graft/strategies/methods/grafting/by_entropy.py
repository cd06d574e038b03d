"""Grafting that picks the task whose answer has the least entropy."""

from __future__ import annotations

from avalanche.training.templates import SupervisedTemplate

from cl_graft.inference.routing_rules import least_entropy
from cl_graft.strategies.methods.grafting.region_loop import keep_bank_
from cl_graft.strategies.methods.grafting.routed_loop import build_routed, register_routed
from cl_graft.strategies.routing import AnswerRouter
from cl_graft.strategies.strategy_inputs import StrategyInputs

__all__ = ["GraftingByEntropy"]


@register_routed(
    "grafting_by_entropy",
    source="the answer with the least entropy: Wortsman et al., 2020, "
    "https://arxiv.org/abs/2006.14769",
)
class GraftingByEntropy:
    """Learn as grafting does, let every task answer, and keep the answer of the least entropy."""

    load_state_ = staticmethod(keep_bank_)

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return grafting with a router by answers."""
        return build_routed(inputs, AnswerRouter(least_entropy))
