"""Grafting that picks the task of the nearest class mean in the base's features."""

from __future__ import annotations

from avalanche.training.templates import SupervisedTemplate

from cl_graft.strategies.method import StreamShape
from cl_graft.strategies.methods.grafting.region_loop import ENTRY
from cl_graft.strategies.methods.grafting.routed_loop import (
    build_routed,
    count_class_mean_bytes,
    count_router_bytes,
    depth_setting,
    load_router_state_,
    make_feature_router,
    read_router,
    register_routed,
)
from cl_graft.strategies.strategy_inputs import StrategyInputs

__all__ = ["GraftingByPrototypes"]


@register_routed(
    "grafting_by_prototypes",
    source="the task of the nearest class mean in the base's features: Rebuffi et al., 2017, "
    "https://arxiv.org/abs/1611.07725",
    adds=f"{ENTRY}; the mean features of its classes",
)
class GraftingByPrototypes:
    """Learn as grafting does, and pick the task whose class mean is at the smallest angle."""

    depth: float = depth_setting(grid=(0.33, 1.0))

    storage_bytes = staticmethod(count_router_bytes)
    state = staticmethod(read_router)
    load_state_ = staticmethod(load_router_state_)

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return grafting with a router by class means."""
        return build_routed(inputs, make_feature_router(inputs, depth=self.depth))

    def task_bytes(self, shape: StreamShape) -> float:
        """Return the bytes of the class means."""
        return count_class_mean_bytes(shape)
