"""Distillation: outputs are held near those of the model before the task."""

from __future__ import annotations

from typing import Any

from avalanche.training.plugins import LwFPlugin
from avalanche.training.templates import SupervisedTemplate

from cl_graft.strategies import StrategyInputs, count_stored, register_strategy, setting
from cl_graft.strategies.strategy import Strategy


class DistilOneHead(LwFPlugin):
    """Avalanche's `LwFPlugin` for tasks that share a head.

    The plugin would distil the classes of each task apart, and ask the same head for each.
    """

    def after_training_exp(self, strategy: Strategy, **kwargs: Any) -> None:
        """Keep a copy of the model, and count all classes seen as those of the first task."""
        super().after_training_exp(strategy, **kwargs)
        seen = self.lwf.prev_classes_by_task
        classes = set().union(*seen.values())
        first = min(seen)
        seen.clear()
        seen[first] = classes


@register_strategy(
    "lwf",
    family="distillation",
    source="Li and Hoiem, 2016, https://arxiv.org/abs/1606.09282; Avalanche's LwF",
    adds="the first task a copy of the model, others a copy of their head",
    kinds="classification",
)
class LwF:
    """Hold the answers of earlier heads on new rows near those of the model before the task."""

    alpha: float = setting(
        1.0, "Weight of the distillation loss; 0 is Naive.", min_value=0, grid=(0.1, 1.0, 10.0)
    )
    temperature: float = setting(
        2.0, "Temperature of the teacher's and the model's answers.", min_value=1e-6
    )

    storage_bytes = count_stored(LwFPlugin, "lwf.prev_model")

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return Naive with Avalanche's `LwFPlugin`, or its version for one head."""
        kind: Any = DistilOneHead if inputs.model.one_head else LwFPlugin
        plugin = kind(alpha=self.alpha, temperature=self.temperature)
        return inputs.naive(plugin, whole_batches=True)
