"""Training of the upper blocks alone, in any loop that trains weights."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from avalanche.core import SupervisedPlugin

from cl_graft.grafts.blocks import select_upper
from cl_graft.grafts.model_state import preserve_requires_grad
from cl_graft.localization.grafting_settings import GraftingSettings
from cl_graft.models.lower_states import freeze_below
from cl_graft.strategies.heads import find_graftable, unwrap_model

__all__ = ["UpperLayers"]


class UpperLayers(SupervisedPlugin, supports_distributed=False):
    """Freeze the lower blocks while an experience trains, and compute them once a row.

    It is what `GraftingSettings.layers` does for regions: the states below are stored within
    `GraftingSettings.states_memory`, and the blocks below have no dropout.

    Runs at: before_training, before_training_exp, after_training_exp.

    Args:
        layers: Number of upper blocks that train, at least 1.
    """

    def __init__(self, layers: int) -> None:
        super().__init__()
        self._layers = layers
        self._until_done = ExitStack()

    def before_training(self, strategy: Any, **kwargs: Any) -> None:
        """End what an exception left."""
        self._until_done.close()

    def before_training_exp(self, strategy: Any, **kwargs: Any) -> None:
        """Freeze the lower blocks."""
        model = unwrap_model(strategy.model)
        parameters = find_graftable(model)
        upper = select_upper(model, parameters, self._layers)
        self._until_done.enter_context(preserve_requires_grad(model))
        for name, parameter in parameters.items():
            if name not in upper:
                parameter.requires_grad_(False)
        memory = GraftingSettings().states_memory
        self._until_done.enter_context(freeze_below(model, self._layers, memory=memory))

    def after_training_exp(self, strategy: Any, **kwargs: Any) -> None:
        """Let all blocks train again."""
        self._until_done.close()
