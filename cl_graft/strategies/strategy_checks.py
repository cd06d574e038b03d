"""Checks of what grafting is given: its arguments, and the strategy's model, rows and plugins."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from typing import get_args

from avalanche.models import (
    PNN,
    CosineIncrementalClassifier,
    FeCAMClassifier,
    NCMClassifier,
    TrainEvalModel,
)
from avalanche.models.packnet import PackNetModule
from avalanche.training.plugins import (
    AGEMPlugin,
    EWCPlugin,
    GEMPlugin,
    MASPlugin,
    MIRPlugin,
    RWalkPlugin,
    SynapticIntelligencePlugin,
)
from torch import nn

from cl_graft.errors import a_or_an
from cl_graft.grafts.bank import BaseIdentity, GraftBank
from cl_graft.localization.grafting_settings import GraftingSettings
from cl_graft.models import TaskModel
from cl_graft.strategies.experience_tasks import TaskLabels
from cl_graft.strategies.loop.best_step import KeepBest
from cl_graft.strategies.loop.steps_and_rates import RegionRate
from cl_graft.strategies.strategy import Strategy
from cl_graft.strategies.task_heads import unwrap_model
from cl_graft.training.precision import warn_of_float16

logger = logging.getLogger(__name__)

_ON_WEIGHTS = (
    *(EWCPlugin, MASPlugin, RWalkPlugin, SynapticIntelligencePlugin),
    *(AGEMPlugin, GEMPlugin, MIRPlugin),
)
"""Plugins that look at gradients or values of the model's own parameters."""

_HIGH_RATE = 0.1
_REFUSED: tuple[tuple[type[nn.Module], str], ...] = (
    (PNN, "adds a column of parameters for every task and forgets nothing by itself"),
    (PackNetModule, "keeps every task's weights apart by itself"),
    (NCMClassifier, "answers by class means that no gradient trains"),
    (FeCAMClassifier, "answers by class means and covariances that no gradient trains"),
    (CosineIncrementalClassifier, "keeps the order of its classes outside of its tensors"),
)
"""Modules whose answers depend on more than parameters that a graft or a head can hold."""


def check_arguments(
    *,
    settings: GraftingSettings | None,
    by_label: object,
    bank: GraftBank | None,
    identity: object,
    task_labels: object,
) -> None:
    """Refuse arguments of `GraftingPlugin` that would only fail, or be ignored, later."""
    _check_type("settings", settings, GraftingSettings, "GraftingSettings(density=0.002)")
    _check_type("bank", bank, GraftBank, "load_bank(folder)")
    _check_type("identity", identity, BaseIdentity, "a BaseIdentity")
    _check_type("by_label", by_label, Mapping, "settings by task label, as in {0: settings}")
    for label, each in (by_label or {}).items() if isinstance(by_label, Mapping) else ():
        if type(label) is not int or not isinstance(each, GraftingSettings):
            raise TypeError(
                f"by_label holds {label!r}: {type(each).__name__}; expected GraftingSettings by "
                "task label, which is a whole number, as in {0: GraftingSettings()}"
            )
    if task_labels not in get_args(TaskLabels):
        raise ValueError(
            f"task_labels must be one of {', '.join(map(repr, get_args(TaskLabels)))}, got "
            f"{task_labels!r}"
        )
    mode = (settings or GraftingSettings()).mode
    if bank is not None and bank.mode != mode:
        raise ValueError(
            f"the bank answers in {bank.mode} mode, the settings say {mode!r}; use "
            f"mode={bank.mode!r} to go on with it"
        )


def check_instance(plugin: object, kind: type) -> None:
    """Refuse a class in place of a plugin or metric: its hooks would get the strategy as `self`."""
    if not isinstance(plugin, kind):
        raise TypeError(
            f"the strategy holds the class {kind.__name__}; make one of it: {kind.__name__}()"
        )


def _check_type(name: str, given: object, kind: type, example: str) -> None:
    if given is not None and not isinstance(given, kind):
        shown = repr(given) if isinstance(given, str) else a_or_an(type(given).__name__)
        if isinstance(given, type):
            shown = f"the class {given.__name__}"
        raise TypeError(f"{name} must be {kind.__name__}, such as {example}, got {shown}")


def check_rows(strategy: Strategy, *, label: int, learned: frozenset[int]) -> None:
    """Refuse a strategy that trains on rows of tasks that have no entry."""
    labels = getattr(strategy.adapted_dataset, "targets_task_labels", None)
    if others := sorted(
        {int(other) for other in getattr(labels, "uniques", ())} - learned - {label}
    ):
        raise ValueError(
            f"{type(strategy).__name__} trains task {label} on rows of tasks "
            f"{', '.join(map(str, others))}, too, which were not learned: grafting makes an entry "
            "of one task at a time, so these would be answered at chance. Train the experiences "
            "one after the other (JointTraining takes all at once)"
        )


def check_optimizer(strategy: Strategy) -> None:
    """Warn of an optimiser that was made for another model, which Avalanche silently takes over.

    Only before the first experience: a head that grew since has other parameters.
    """
    if strategy.clock.train_exp_counter:
        return
    ids = {id(parameter) for parameter in strategy.model.parameters()}
    held = [p for group in strategy.optimizer.param_groups for p in group["params"]]
    if held and not any(id(parameter) in ids for parameter in held):
        warnings.warn(
            "the optimiser holds no parameter of the strategy's model: was it made for another "
            "one? Avalanche gives it this model's, so its learning rate is used here",
            stacklevel=3,
        )


def check_rate(strategy: Strategy) -> None:
    """Warn of a learning rate that is far too high for an optimiser of Adam's kind."""
    if any(isinstance(plugin, RegionRate) for plugin in strategy.plugins):
        return  # it sets the rate when the first epoch begins
    optimizer = strategy.optimizer
    rate = float(optimizer.param_groups[0]["lr"])
    if "betas" in optimizer.defaults and rate >= _HIGH_RATE:
        logger.warning(
            "%s moves every weight by about its learning rate in a step, and %g is far: 0.001 to "
            "0.01 is usual, and rates such as 0.3 are for SGD",
            type(optimizer).__name__,
            rate,
        )


def check_model(model: nn.Module) -> None:
    """Refuse a model whose answers depend on more than a graft and a head can hold.

    A model of one's own with weights in float16 gets a warning; `load_model` is told the type.
    """
    if not isinstance(unwrap_model(model), TaskModel):
        warn_of_float16(model)
    for module in model.modules():
        for kind, reason in _REFUSED:
            if isinstance(module, kind):
                raise ValueError(
                    f"grafting cannot learn with {type(module).__name__}: it {reason}; take a "
                    "plain classifier, IncrementalClassifier or MultiHeadClassifier in its place"
                )
        if isinstance(module, TrainEvalModel) and (
            module.train_classifier is not module.eval_classifier
        ):
            raise ValueError(
                "grafting cannot learn with a TrainEvalModel of two classifiers: the one that "
                "answers is not the one that trains; give it one classifier for both"
            )


def check_plugins(strategy: Strategy, kind: type) -> None:
    """Refuse plugins that cannot act on a region."""
    plugins = strategy.plugins
    if sum(isinstance(plugin, kind) for plugin in plugins) > 1:
        raise ValueError(
            f"the strategy has several plugins of the class {kind.__name__}, which would each "
            "learn every task; leave one (GraftingContinual brings its own)"
        )
    if any(isinstance(plugin, KeepBest) for plugin in plugins):
        raise ValueError(
            "KeepBest puts the optimiser's values back, but a region's values stand in the model; "
            "take the plugin out and let regions choose: GraftingSettings(evaluate_every=...)"
        )
    foreign = {type(plugin).__name__ for plugin in plugins if isinstance(plugin, _ON_WEIGHTS)}
    if foreign:
        raise ValueError(
            f"{', '.join(sorted(foreign))} cannot act on a region: the model's own parameters, "
            "which it looks at, stay frozen under grafting; take the plugin out"
        )
