"""What grafting asks of the strategy it is plugged into."""

from __future__ import annotations

import warnings
from typing import Any

from avalanche.models import (
    PNN,
    CosineIncrementalClassifier,
    FeCAMClassifier,
    NCMClassifier,
    TrainEvalModel,
)
from avalanche.models.packnet import PackNetModule
from torch import nn

__all__ = ["check_model", "check_plugins"]

_REACHES_INTO_PARAMETERS = ("EWCPlugin", "GEMPlugin", "MASPlugin")
_NEEDS_EVERY_GRADIENT = ("SynapticIntelligencePlugin",)
_REFUSED: tuple[tuple[type[nn.Module], str], ...] = (
    (PNN, "adds a column of parameters for every task and forgets nothing by itself"),
    (PackNetModule, "keeps every task's weights apart by itself"),
    (NCMClassifier, "answers by class means that no gradient trains"),
    (FeCAMClassifier, "answers by class means and covariances that no gradient trains"),
    (CosineIncrementalClassifier, "keeps the order of its classes outside of its tensors"),
)
"""Modules whose answers depend on more than parameters that a graft or a head can hold."""


def check_model(model: nn.Module) -> None:
    """Refuse a model whose answers depend on more than a graft and a head can hold.

    Raises:
        ValueError: It names the module and the reason.
    """
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


def check_plugins(strategy: Any) -> None:
    """Warn of plugins that cannot act on a region, and refuse those that fail on it.

    Raises:
        ValueError: If a plugin needs the gradient of every parameter.
    """
    names = {type(plugin).__name__ for plugin in strategy.plugins}
    failing = sorted(names.intersection(_NEEDS_EVERY_GRADIENT))
    if failing:
        raise ValueError(
            f"{', '.join(failing)} needs the gradient of every parameter, but under grafting only "
            "the region has one; take the plugin out"
        )
    reaching = sorted(names.intersection(_REACHES_INTO_PARAMETERS))
    if reaching:
        warnings.warn(
            f"{', '.join(reaching)} look at the model's own parameters, which stay frozen under "
            "grafting: they cannot act on a region",
            stacklevel=2,
        )
