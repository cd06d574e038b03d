"""Distillation: the model is held near what it answered, or saw, before the task."""

from __future__ import annotations

from typing import Any, cast

import torch
from avalanche.training.plugins import LFLPlugin, LwFPlugin
from avalanche.training.templates import SupervisedTemplate
from torch import Tensor, nn

from cl_graft.models import TaskModel
from cl_graft.strategies.baselines.stored_bytes import bytes_of, plugin_of
from cl_graft.strategies.heads import carrier_of
from cl_graft.strategies.method_settings import Setting
from cl_graft.strategies.registered import StrategyRow
from cl_graft.strategies.strategy_inputs import StrategyInputs

__all__ = ["ROWS", "DistilOneHead", "LessForgetfulText"]


class LessForgetfulText(LFLPlugin):
    """Avalanche's `LFLPlugin` on the pooled features of a text encoder.

    The plugin asks for a model class of Avalanche's own, and leaves the model in eval mode.
    """

    def before_training(self, strategy: Any, **kwargs: Any) -> None:
        """Do nothing: the model need not be of Avalanche's class."""

    def compute_features(self, model: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the features of the model that learns and of its teacher, in their own modes."""
        teacher = cast(nn.Module, self.prev_model)
        teacher.eval()
        now, then = (cast(TaskModel, carrier_of(each)) for each in (model, teacher))
        with torch.no_grad():
            before = then.text_features(x)
        return now.text_features(x), before


class DistilOneHead(LwFPlugin):
    """Avalanche's `LwFPlugin` for tasks that share a head.

    The plugin would distil the classes of each task apart, and ask the same head for each.
    """

    def after_training_exp(self, strategy: Any, **kwargs: Any) -> None:
        """Keep a copy of the model, and all classes seen as those of the first task."""
        super().after_training_exp(strategy, **kwargs)
        seen = self.lwf.prev_classes_by_task
        classes = set().union(*seen.values())
        first = min(seen)
        seen.clear()
        seen[first] = classes


def _lwf(inputs: StrategyInputs) -> SupervisedTemplate:
    own = inputs.settings
    kind = DistilOneHead if inputs.model.one_head else LwFPlugin
    plugin = kind(alpha=own["alpha"], temperature=own["temperature"])
    return inputs.naive(plugin, whole_batches=True)


def _lfl(inputs: StrategyInputs) -> SupervisedTemplate:
    return inputs.naive(LessForgetfulText(inputs.settings["lambda_e"]), whole_batches=True)


def _held_by_lwf(strategy: SupervisedTemplate) -> int:
    return bytes_of(plugin_of(strategy, LwFPlugin).lwf.prev_model)


def _held_by_lfl(strategy: SupervisedTemplate) -> int:
    return bytes_of(plugin_of(strategy, LFLPlugin).prev_model)


ROWS = (
    StrategyRow(
        "lwf",
        "distillation",
        "Li and Hoiem, 2016, https://arxiv.org/abs/1606.09282; Avalanche's LwF",
        "everything",
        "head",
        _lwf,
        settings=(
            Setting("alpha", 1.0, "Weight of the distillation loss; 0 is Naive.", least=0),
            Setting("temperature", 2.0, "Of the teacher's and the model's answers.", least=1e-6),
        ),
        grid={"alpha": (0.1, 1.0, 10.0)},
        holds=_held_by_lwf,
        adds="the first task a copy of the model, others a copy of their head",
    ),
    StrategyRow(
        "lfl",
        "distillation",
        "Jung et al., 2016, https://arxiv.org/abs/1607.00122; Avalanche's LFL",
        "everything",
        "head",
        _lfl,
        settings=(Setting("lambda_e", 1.0, "Weight of the distance between features.", least=0),),
        grid={"lambda_e": (0.1, 1.0, 10.0)},
        holds=_held_by_lfl,
        adds="the first task a copy of the model, others a copy of their head",
        refuses={"class": "it freezes the head after the first task, so no later class is learned"},
        encoders_only=True,
    ),
)
