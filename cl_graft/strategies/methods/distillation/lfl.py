"""LFL: the features of a new task's rows are held near those of the model before the task."""

from __future__ import annotations

from typing import Any, cast

import torch
from avalanche.training.plugins import LFLPlugin
from avalanche.training.templates import SupervisedTemplate
from torch import Tensor, nn

from cl_graft.models import TaskModel
from cl_graft.strategies import StrategyInputs, count_stored, register_strategy, setting
from cl_graft.strategies.heads import unwrap_model

__all__ = ["LessForgetfulLearning", "LessForgetfulText"]


class LessForgetfulText(LFLPlugin):
    """Avalanche's `LFLPlugin` on the pooled features of a text encoder.

    The plugin asks for a model class of Avalanche's own, and leaves the model in eval mode.
    """

    def before_training(self, strategy: Any, **kwargs: Any) -> None:
        """Do nothing: the model need not be of Avalanche's class."""

    def compute_features(self, model: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the features of the model in training, and of its teacher in eval mode."""
        teacher = cast(nn.Module, self.prev_model)
        teacher.eval()
        now, then = (cast(TaskModel, unwrap_model(each)) for each in (model, teacher))
        with torch.no_grad():
            before = then.text_features(x)
        return now.text_features(x), before


@register_strategy(
    "lfl",
    family="distillation",
    source="Jung et al., 2016, https://arxiv.org/abs/1607.00122; Avalanche's LFL",
    adds="the first task a copy of the model, others a copy of their head",
    unsupported={"class": "it freezes the head after the first task, so no later class is learned"},
    encoders_only=True,
)
class LessForgetfulLearning:
    """Hold the features of new rows near those of the model before the task, and freeze heads."""

    lambda_e: float = setting(
        1.0, "Weight of the distance between features.", least=0, grid=(0.1, 1.0, 10.0)
    )

    storage_bytes = count_stored(LFLPlugin, "prev_model")

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return Naive with `LessForgetfulText`."""
        return inputs.naive(LessForgetfulText(self.lambda_e), whole_batches=True)
