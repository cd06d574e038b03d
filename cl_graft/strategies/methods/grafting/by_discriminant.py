"""Grafting that picks the task by linear discriminant analysis of the base's features."""

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
    shrinkage_setting,
)
from cl_graft.strategies.strategy_inputs import StrategyInputs

__all__ = ["GraftingByDiscriminant"]


@register_routed(
    "grafting_by_discriminant",
    source="linear discriminant analysis of the base's features: Hayes and Kanan, 2020, "
    "https://arxiv.org/abs/1909.01520",
    adds=f"{ENTRY}; the mean features of its classes; the first task their covariance",
)
class GraftingByDiscriminant:
    """Learn as grafting does, and pick the likeliest task if features are normally distributed."""

    shrinkage: float = shrinkage_setting()
    depth: float = depth_setting(grid=(0.33, 1.0))

    storage_bytes = staticmethod(count_router_bytes)
    state = staticmethod(read_router)
    load_state_ = staticmethod(load_router_state_)

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return grafting with a router by a discriminant."""
        router = make_feature_router(inputs, depth=self.depth, shrinkage=self.shrinkage)
        return build_routed(inputs, router)

    def task_bytes(self, shape: StreamShape) -> float:
        """Return the bytes of the class means and, shared by all tasks, of one covariance."""
        return count_class_mean_bytes(shape) + 4 * shape.model.hidden_size**2 / shape.tasks
