"""The rows of grafting without task labels in the table of strategies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from avalanche.training.templates import SupervisedTemplate
from torch import Tensor

from cl_graft.inference.routing_by_answers import least_energy, least_entropy
from cl_graft.inference.routing_by_features import discriminant, nearest_prototype
from cl_graft.strategies.baselines.stored_bytes import bytes_of
from cl_graft.strategies.graft_rows import (
    ADDS_ENTRY,
    REGION_RATES,
    grafting_plugin,
    plugins_of_regions,
)
from cl_graft.strategies.method_settings import Setting, Value
from cl_graft.strategies.method_size import Room, Size
from cl_graft.strategies.registered import OWN_HEADS, Memory, StrategyRow
from cl_graft.strategies.routing import AnswerRouter, FeatureRouter, FeatureRule, RoutedText, Router
from cl_graft.strategies.strategy_inputs import StrategyInputs

__all__ = ["DEPTH", "ROWS", "SHRINKAGE", "by_discriminant", "by_prototypes", "recall", "remember"]

SHRINKAGE = Setting(
    "shrinkage",
    0.03,
    "Share of the covariance that is replaced by that of equally spread features.",
    least=1e-6,
    most=1,
)
DEPTH = Setting(
    "depth",
    0.33,
    "Where in the base a router takes features: 0 the embeddings, 1 the last block.",
    least=0,
    most=1,
)
_RATES_AND_DEPTHS = {**REGION_RATES, DEPTH.name: (0.33, 1.0)}


def _routed(
    router: Callable[[StrategyInputs], Router],
) -> Callable[[StrategyInputs], SupervisedTemplate]:
    def build(inputs: StrategyInputs) -> SupervisedTemplate:
        return RoutedText(
            **inputs.template_arguments(),
            learner=grafting_plugin(inputs),
            router=router(inputs),
            plugins=plugins_of_regions(inputs),
        )

    return build


def by_prototypes(inputs: StrategyInputs) -> Router:
    """Return the router by the nearest class mean."""
    return _by_features(inputs, nearest_prototype, scatter=False)


def by_discriminant(inputs: StrategyInputs) -> Router:
    """Return the router by linear discriminant analysis."""
    rule = partial(discriminant, shrinkage=inputs.settings[SHRINKAGE.name])
    return _by_features(inputs, rule, scatter=True)


def _by_features(inputs: StrategyInputs, rule: FeatureRule, *, scatter: bool) -> Router:
    size, depth = inputs.model.task_model.hidden_size, inputs.settings[DEPTH.name]
    return FeatureRouter(rule, size=size, depth=depth, scatter=scatter)


def _by_entropy(inputs: StrategyInputs) -> Router:
    return AnswerRouter(least_entropy)


def _by_energy(inputs: StrategyInputs) -> Router:
    return AnswerRouter(least_energy)


def remember(strategy: SupervisedTemplate) -> dict[str, Tensor]:
    """Return what a strategy's router keeps, if it has one and that keeps something."""
    router = getattr(strategy, "router", None)
    return router.tensors() if isinstance(router, FeatureRouter) else {}


def recall(
    strategy: SupervisedTemplate, learned: Sequence[Any], tensors: Mapping[str, Tensor]
) -> None:
    """Know what the router keeps; the plugin was made with the bank."""
    router = getattr(strategy, "router", None)
    if isinstance(router, FeatureRouter):
        router.load_(tensors)


def _held(strategy: SupervisedTemplate) -> int:
    return bytes_of(remember(strategy))


def _mean_bytes(room: Room, value: int) -> float:
    return room.classes * (4 * room.model.hidden_size + 24)


def _mean_and_scatter_bytes(room: Room, value: int) -> float:
    return _mean_bytes(room, value) + 4 * room.model.hidden_size**2 / room.tasks


def _row(
    name: str,
    source: str,
    router: Callable[[StrategyInputs], Router],
    *,
    adds: str = ADDS_ENTRY,
    settings: tuple[Setting, ...] = (),
    grid: Mapping[str, tuple[Value, ...]] = REGION_RATES,
    size: Size | None = None,
) -> StrategyRow:
    return StrategyRow(
        name,
        "grafting",
        source,
        "region",
        "entry",
        _routed(router),
        Memory(recall, remember=remember),
        settings=settings,
        grid=grid,
        holds=_held,
        adds=adds,
        size=size,
        refuses=OWN_HEADS,
        encoders_only=True,
        picks_task=True,
    )


ROWS = (
    _row(
        "grafting_by_prototypes",
        "the task of the nearest class mean in the base's features: Rebuffi et al., 2017, "
        "https://arxiv.org/abs/1611.07725",
        by_prototypes,
        adds=f"{ADDS_ENTRY}; the mean features of its classes",
        size=Size(_mean_bytes),
        settings=(DEPTH,),
        grid=_RATES_AND_DEPTHS,
    ),
    _row(
        "grafting_by_discriminant",
        "linear discriminant analysis of the base's features: Hayes and Kanan, 2020, "
        "https://arxiv.org/abs/1909.01520",
        by_discriminant,
        adds=f"{ADDS_ENTRY}; the mean features of its classes; the first task their covariance",
        size=Size(_mean_and_scatter_bytes),
        settings=(SHRINKAGE, DEPTH),
        grid=_RATES_AND_DEPTHS,
    ),
    _row(
        "grafting_by_entropy",
        "the answer with the least entropy: Wortsman et al., 2020, "
        "https://arxiv.org/abs/2006.14769",
        _by_entropy,
    ),
    _row(
        "grafting_by_energy",
        "the answer with the least energy: Liu et al., 2020, https://arxiv.org/abs/2010.03759",
        _by_energy,
    ),
)
