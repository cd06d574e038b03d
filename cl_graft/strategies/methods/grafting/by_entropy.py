"""Grafting that picks the task whose answer has the least entropy."""

from __future__ import annotations

from avalanche.training.templates import SupervisedTemplate

from cl_graft.inference.routing import least_entropy
from cl_graft.strategies.method import HEAD_PER_TASK
from cl_graft.strategies.methods.grafting.region_loop import (
    ENTRY,
    REGION_RATES,
    keep_bank_,
)
from cl_graft.strategies.methods.grafting.routed_loop import build_routed
from cl_graft.strategies.registry import register_strategy
from cl_graft.strategies.routing import AnswerRouter
from cl_graft.strategies.strategy_inputs import StrategyInputs

__all__ = ["GraftingByEntropy"]


@register_strategy(
    "grafting_by_entropy",
    family="grafting",
    source="the answer with the least entropy: Wortsman et al., 2020, "
    "https://arxiv.org/abs/2006.14769",
    trains="region",
    stored_as="entry",
    adds=ENTRY,
    config_grid=REGION_RATES,
    unsupported=HEAD_PER_TASK,
    encoders_only=True,
    picks_task=True,
)
class GraftingByEntropy:
    """Learn as grafting does, let every task answer, and keep the answer of the least entropy."""

    load_state_ = staticmethod(keep_bank_)

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return grafting with a router by answers."""
        return build_routed(inputs, AnswerRouter(least_entropy))
