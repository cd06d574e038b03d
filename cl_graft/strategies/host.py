"""What grafting asks of the strategy it is plugged into."""

from __future__ import annotations

import warnings
from typing import Any

from cl_graft.strategies.heads import has_task_heads

__all__ = ["check_plugins", "single_label_stream"]

_REACHES_INTO_PARAMETERS = ("EWCPlugin", "GEMPlugin", "MASPlugin")
_NEEDS_EVERY_GRADIENT = ("SynapticIntelligencePlugin",)


def single_label_stream(strategy: Any) -> bool:
    """Tell whether a stream of several experiences has one label and the model no task heads.

    Avalanche's older benchmarks give every experience the label 0 where they mean "no labels".
    """
    if has_task_heads(strategy.model):
        return False
    stream = strategy.experience.origin_stream
    if stream is None or len(stream) < 2:
        return False
    labels = {int(label) for experience in stream for label in experience.task_labels}
    return len(labels) == 1


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
