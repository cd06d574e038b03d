"""CoPE: no heads, but a prototype a class in the encoder's feature space, and replay.

It adapts Avalanche's plugin, which expects classes that are numbered across tasks and streams whose
experiences are single batches, after each of which it moves the prototypes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from avalanche.training.plugins import CoPEPlugin
from avalanche.training.templates import SupervisedTemplate
from torch import Tensor, nn

from cl_graft.models import TaskModel
from cl_graft.strategies import StrategyInputs, count_stored, register_strategy, setting
from cl_graft.strategies.benchmark import TextStream
from cl_graft.strategies.heads import unwrap_model
from cl_graft.strategies.method import StreamShape
from cl_graft.strategies.methods.rehearsal.row_buffers import memory_setting

__all__ = ["CoPE", "OnFeatures", "PrototypesOfTasks"]


class OnFeatures(SupervisedTemplate):
    """A strategy whose outputs are the pooled features of a text encoder, of length 1."""

    def forward(self) -> Tensor:
        """Return features of shape (n, hidden size)."""
        model = cast(TaskModel, unwrap_model(self.model))
        return nn.functional.normalize(model.text_features(self.mb_x), dim=1)


class PrototypesOfTasks(CoPEPlugin):
    """Avalanche's `CoPEPlugin` for tasks whose classes share their numbers.

    Continual Prototype Evolution (De Lange and Tuytelaars, 2021,
    https://arxiv.org/abs/2009.00919). Prototypes move after every batch, as in the paper, and
    answers are the similarities to the prototypes of the task.

    Args:
        classes: Numbers of the classes in all, by task label.
        size: Size of the features.
        mem_size: Number of rows kept, of all tasks together.
        alpha: Share of a prototype that is kept when it moves, in [0, 1].
        temperature: Temperature of the loss and of answers, > 0.
    """

    def __init__(
        self,
        classes: Mapping[int, range],
        *,
        size: int,
        mem_size: int,
        alpha: float,
        temperature: float,
    ) -> None:
        count = max(own.stop for own in classes.values())
        super().__init__(
            mem_size=mem_size, n_classes=count, p_size=size, alpha=alpha, T=temperature
        )
        self._ranges = dict(classes)

    def before_training(self, strategy: Any, **kwargs: Any) -> None:
        """Draw prototypes, once, and train with the loss on them."""
        if not self.initialized:
            strategy._criterion = self.ppp_loss
            self._init_new_prototypes(torch.arange(self.n_classes, device=strategy.device))
            self.initialized = True

    def before_forward(self, strategy: Any, **kwargs: Any) -> None:
        """Number the batch's classes across tasks."""
        firsts = [self._ranges[int(label)].start for label in strategy.mb_task_id]
        strategy.mbatch[1] = strategy.mb_y + torch.tensor(firsts, device=strategy.mb_y.device)

    def after_training_iteration(self, strategy: Any, **kwargs: Any) -> None:
        """Move the prototypes of the batch's classes."""
        self._update_prototypes()

    def after_training_exp(self, strategy: Any, **kwargs: Any) -> None:
        """Keep rows of the experience."""
        self.storage_policy.post_adapt(strategy, strategy.experience)

    def after_eval_iteration(self, strategy: Any, **kwargs: Any) -> None:
        """Turn features into one logit a class of the task."""
        own = self._ranges[int(strategy.experience.task_label)]
        if not self.initialized:  # before any training, all classes are alike
            strategy.mb_output = strategy.mb_output.new_zeros(len(strategy.mb_output), len(own))
            return
        prototypes = torch.cat([self.p_mem[number] for number in own])
        strategy.mb_output = strategy.mb_output @ prototypes.T / self.T


def _number_classes(stream: TextStream) -> dict[int, range]:
    """Number the classes of all tasks consecutively; tasks that share a head share the numbers."""
    numbers: dict[int, range] = {}
    first = 0
    for label, encoded in enumerate(stream.tasks, start=stream.first_label):
        numbers[label] = range(first, first + encoded.task.num_outputs)
        first += 0 if stream.one_head else encoded.task.num_outputs
    return numbers


@register_strategy(
    "cope",
    family="rehearsal",
    source="De Lange and Tuytelaars, 2021, https://arxiv.org/abs/2009.00919; Avalanche's CoPE; "
    "keeps the last step",
    adds="rows, `mem_size` in all; the first task all prototypes",
    encoders_only=True,
    kinds="classification",
)
class CoPE:
    """Answer by the nearest class prototype in the feature space, which kept rows hold in place."""

    mem_size: int = memory_setting()
    alpha: float = setting(0.99, "Weight of the old prototype when it moves.", least=0, most=1)
    temperature: float = setting(
        0.1, "Temperature of the loss and of answers.", least=1e-3, grid=(0.05, 0.1, 0.2)
    )

    storage_bytes = count_stored(CoPEPlugin, "storage_policy.buffer", "p_mem")

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return `OnFeatures` with `PrototypesOfTasks`."""
        plugin = PrototypesOfTasks(
            _number_classes(inputs.stream),
            size=inputs.model.task_model.hidden_size,
            mem_size=self.mem_size,
            alpha=self.alpha,
            temperature=self.temperature,
        )
        # `KeepBest` cannot restore prototypes, as the optimiser does not hold them.
        return inputs.sgd_strategy(OnFeatures, plugin, whole_batches=True, keep_best=False)

    def task_bytes(self, shape: StreamShape) -> float:
        """Return the bytes of the kept rows and of a task's prototypes."""
        prototypes = 4 * shape.classes * shape.model.hidden_size
        return self.mem_size * shape.row_bytes / shape.tasks + prototypes
