"""CoPE: no heads, but a prototype a class in the encoder's feature space.

Avalanche's plugin and its loss, with an adapter: it numbers classes across tasks, and is written
for streams whose experiences are single batches, after each of which prototypes move.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from avalanche.training.plugins import CoPEPlugin
from avalanche.training.templates import SupervisedTemplate
from torch import Tensor, nn

from cl_graft.models import TaskModel
from cl_graft.strategies.baselines.stored_bytes import bytes_of, plugin_of, row_bytes
from cl_graft.strategies.benchmark import TextStream
from cl_graft.strategies.heads import carrier_of
from cl_graft.strategies.method_settings import Setting
from cl_graft.strategies.method_size import Room, Size
from cl_graft.strategies.registered import StrategyRow
from cl_graft.strategies.strategy_inputs import StrategyInputs

__all__ = ["ROWS", "OnFeatures", "PrototypesOfTasks"]


class OnFeatures(SupervisedTemplate):
    """A strategy whose outputs are the pooled features of a text encoder, of length 1."""

    def forward(self) -> Tensor:
        """Return features of shape (n, hidden size)."""
        carrier = cast(TaskModel, carrier_of(self.model))
        return nn.functional.normalize(carrier.text_features(self.mb_x), dim=1)


class PrototypesOfTasks(CoPEPlugin):
    """Avalanche's `CoPEPlugin` for tasks whose classes share their numbers.

    Continual Prototype Evolution (De Lange and Tuytelaars, 2021,
    https://arxiv.org/abs/2009.00919). Prototypes move after every batch, as in the paper, and
    answers are the similarities to the prototypes of the task.

    Args:
        classes: Numbers of the classes in all, by task label.
        size: Size of the features.
        mem_size: Rows kept, of all tasks together.
        alpha: What is kept of a prototype when it moves, in [0, 1].
        temperature: Of the loss and of answers.
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


def _cope(inputs: StrategyInputs) -> SupervisedTemplate:
    own = inputs.settings
    plugin = PrototypesOfTasks(
        _numbers(inputs.stream),
        size=inputs.model.task_model.hidden_size,
        mem_size=own["mem_size"],
        alpha=own["alpha"],
        temperature=own["temperature"],
    )
    # Prototypes are no values of the optimiser's: those of the last step answer.
    return inputs.sgd_strategy(OnFeatures, plugin, whole_batches=True, keep_best=False)


def _numbers(stream: TextStream) -> dict[int, range]:
    """Number the classes of all tasks through; those of tasks that share a head are the same."""
    numbers: dict[int, range] = {}
    first = 0
    for label, encoded in enumerate(stream.tasks, start=stream.first_label):
        numbers[label] = range(first, first + encoded.task.num_classes)
        first += 0 if stream.one_head else encoded.task.num_classes
    return numbers


def _held_by_cope(strategy: SupervisedTemplate) -> int:
    plugin = plugin_of(strategy, CoPEPlugin)
    return row_bytes([plugin.storage_policy.buffer]) + bytes_of(plugin.p_mem)


def _bytes(room: Room, rows: int) -> float:
    return rows * room.row / room.tasks + 4 * room.classes * room.model.hidden_size


ROWS = (
    StrategyRow(
        "cope",
        "rehearsal",
        "De Lange and Tuytelaars, 2021, https://arxiv.org/abs/2009.00919; Avalanche's CoPE; keeps "
        "the last step",
        "everything",
        "head",
        _cope,
        settings=(
            Setting("mem_size", 200, "Rows kept, of all tasks together.", least=1),
            Setting("alpha", 0.99, "What is kept of a prototype when it moves.", least=0, most=1),
            Setting("temperature", 0.1, "Of the loss and of answers.", least=1e-3),
        ),
        grid={"temperature": (0.05, 0.1, 0.2)},
        holds=_held_by_cope,
        adds="rows, `mem_size` in all; the first task all prototypes",
        size=Size(_bytes, "mem_size"),
        encoders_only=True,
    ),
)
