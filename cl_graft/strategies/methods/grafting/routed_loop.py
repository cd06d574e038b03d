"""Parts of the methods that learn as grafting does and pick the task of a text by a router."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from avalanche.training.templates import SupervisedTemplate
from torch import Tensor

from cl_graft.inference.routing_rules import discriminant, nearest_prototype
from cl_graft.strategies import StrategyInputs, count_bytes, register_strategy, setting
from cl_graft.strategies.method import HEAD_PER_TASK, StreamShape
from cl_graft.strategies.methods.grafting.region_loop import (
    ENTRY,
    REGION_RATES,
    make_grafting_plugin,
    make_region_plugins,
)
from cl_graft.strategies.routing import FeatureRouter, RoutedText, Router

__all__ = [
    "build_routed",
    "count_class_mean_bytes",
    "count_router_bytes",
    "depth_setting",
    "load_router_state_",
    "make_feature_router",
    "read_router",
    "register_routed",
    "shrinkage_setting",
]

_Kind = TypeVar("_Kind", bound=type)


def depth_setting(grid: tuple[float, ...] = ()) -> Any:
    """Return the setting of the layer whose features a router reads."""
    return setting(
        0.33,
        "Where in the base a router takes features: 0 the embeddings, 1 the last block.",
        least=0,
        most=1,
        grid=grid,
    )


def shrinkage_setting() -> Any:
    """Return the setting of the covariance of a discriminant."""
    return setting(
        0.03,
        "Share of the covariance that is replaced by that of equally spread features.",
        least=1e-6,
        most=1,
    )


def register_routed(name: str, *, source: str, adds: str = ENTRY) -> Callable[[_Kind], _Kind]:
    """Register a method that learns as grafting does and picks the task by a router.

    Args:
        name: The method's name.
        source: Paper of the router.
        adds: Description of all that a task adds to storage.
    """
    return register_strategy(
        name,
        family="grafting",
        source=source,
        trains="region",
        stored_as="entry",
        adds=adds,
        config_grid=REGION_RATES,
        unsupported=HEAD_PER_TASK,
        encoders_only=True,
        kinds="classification",
        picks_task=True,
    )


def build_routed(inputs: StrategyInputs, router: Router) -> SupervisedTemplate:
    """Return the strategy that learns as grafting does and answers as the router says."""
    return RoutedText(
        **inputs.template_arguments(optimizer=inputs.region_optimizer, head_group=True),
        learner=make_grafting_plugin(inputs),
        router=router,
        plugins=make_region_plugins(inputs),
    )


def make_feature_router(
    inputs: StrategyInputs, *, depth: float, shrinkage: float | None = None
) -> Router:
    """Return the router by the nearest class mean, or by linear discriminant analysis.

    Args:
        inputs: Inputs of the strategy.
        depth: Place in the base of the features, in [0, 1].
        shrinkage: Shrinkage of the discriminant's covariance; None picks the nearest class mean.
    """
    by_means = shrinkage is None
    rule = nearest_prototype if by_means else partial(discriminant, shrinkage=shrinkage)
    size = inputs.model.task_model.hidden_size
    return FeatureRouter(rule, size=size, depth=depth, scatter=not by_means)


def read_router(strategy: SupervisedTemplate) -> dict[str, Tensor]:
    """Return what a strategy's router knows; nothing where it learns nothing."""
    router = getattr(strategy, "router", None)
    return router.tensors() if isinstance(router, FeatureRouter) else {}


def load_router_state_(
    strategy: SupervisedTemplate, experiences: Sequence[Any], tensors: Mapping[str, Tensor]
) -> None:
    """Give a strategy's router what another one knew; the plugin was made with the bank."""
    router = getattr(strategy, "router", None)
    if isinstance(router, FeatureRouter):
        router.load_(tensors)


def count_router_bytes(strategy: SupervisedTemplate) -> int:
    """Return the bytes of what a strategy's router knows."""
    return count_bytes(read_router(strategy))


def count_class_mean_bytes(shape: StreamShape) -> float:
    """Return the bytes of the mean features of a task's classes."""
    return shape.classes * (4 * shape.model.hidden_size + 24)
