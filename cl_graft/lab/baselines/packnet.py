"""PackNet for transformers: tasks share out the weights of the blocks' matrices by magnitude.

A task trains the weights that no earlier one owns, keeps the largest of them, sets the others to
zero and trains what it kept a little longer (Mallya and Lazebnik, 2018,
https://arxiv.org/abs/1711.05769). It is answered with its own weights and those of earlier tasks.
Biases and LayerNorms train with the first task and are frozen afterwards, so backward transfer is
exactly 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from avalanche.core import SupervisedPlugin
from avalanche.training.supervised import Naive
from avalanche.training.templates import SupervisedTemplate
from torch import Tensor, nn

from cl_graft.errors import InputError
from cl_graft.lab.baselines.own_values import freeze_except_
from cl_graft.models import graftable_parameters
from cl_graft.strategies import StrategyInputs, count_stored, register_strategy, setting
from cl_graft.strategies.heads import unwrap_model
from cl_graft.strategies.loop.best_step import KeepBest
from cl_graft.strategies.method import PICKED_BY_LABEL, StreamShape
from cl_graft.strategies.strategy import Strategy

_FREE = 0
_MOST = 255


class PackedWeights(SupervisedPlugin, supports_distributed=False):
    """Share out the weights of the blocks' matrices among the tasks.

    The optimiser must have neither momentum nor weight decay: they would move weights whose
    gradient is 0.

    Runs at: before_training_exp, after_backward, after_training_iteration, after_training_exp,
    before_eval_exp, after_eval_exp.
    """

    def __init__(self, *, prune: float, retrain: float, steps: Mapping[int, int]) -> None:
        super().__init__()
        self.prune = prune
        self.retrain = retrain
        self.steps = dict(steps)
        self.owners: dict[str, Tensor] = {}
        self._numbers: dict[int, int] = {}
        self._pruned = False
        self._live: dict[str, Tensor] = {}
        self._later: dict[str, Tensor] = {}

    def before_training_exp(self, strategy: Strategy, **kwargs: Any) -> None:
        """Open the free weights."""
        self._restore(strategy)
        _refuse_many(len(self._numbers) + 1)
        model = unwrap_model(strategy.model)
        matrices = _matrices(model)
        if not self.owners:
            self.owners = {
                name: torch.zeros_like(p, dtype=torch.uint8) for name, p in matrices.items()
            }
        trained = matrices if self._numbers else graftable_parameters(model)
        label = int(strategy.experience.task_label)
        freeze_except_(model, trained, label=label)
        self._pruned = False
        for plugin in strategy.plugins:
            if isinstance(plugin, KeepBest):
                plugin.first = self._last_before_pruning(label)

    def after_backward(self, strategy: Strategy, **kwargs: Any) -> None:
        """Zero the gradient of weights that are not free, or after pruning not the task's own."""
        mine = len(self._numbers) + 1 if self._pruned else _FREE
        for name, parameter in _matrices(unwrap_model(strategy.model)).items():
            if parameter.grad is not None:
                parameter.grad[self.owners[name] != mine] = 0.0

    def after_training_iteration(self, strategy: Strategy, **kwargs: Any) -> None:
        """Prune after the last step before pruning."""
        last = self._last_before_pruning(int(strategy.experience.task_label))
        if not self._pruned and strategy.clock.train_exp_iterations + 1 >= last:
            self._prune(strategy)

    def after_training_exp(self, strategy: Strategy, **kwargs: Any) -> None:
        """Give the task its number."""
        if not self._pruned:
            self._prune(strategy)
        self._numbers[int(strategy.experience.task_label)] = len(self._numbers) + 1

    def before_eval_exp(self, strategy: Strategy, **kwargs: Any) -> None:
        """Set to zero what the task does not see: free weights, and those of later tasks."""
        self._restore(strategy)
        number = self._numbers.get(int(strategy.experience.task_label))
        if number is None:
            return
        with torch.no_grad():
            for name, parameter in _matrices(unwrap_model(strategy.model)).items():
                owner = self.owners[name]
                later = (owner == _FREE) | (owner > number)
                self._later[name], self._live[name] = later, parameter[later]
                parameter[later] = 0.0

    def after_eval_exp(self, strategy: Strategy, **kwargs: Any) -> None:
        """Put the live weights back."""
        self._restore(strategy)

    def _last_before_pruning(self, label: int) -> int:
        """Return after which step of a task, from 1, its weights are pruned."""
        steps = self.steps[label]
        return steps - math.floor(self.retrain * steps)

    @torch.no_grad()
    def _prune(self, strategy: Strategy) -> None:
        number = len(self._numbers) + 1
        for name, parameter in _matrices(unwrap_model(strategy.model)).items():
            owner = self.owners[name].view(-1)
            flat = parameter.view(-1)
            free = (owner == _FREE).nonzero()[:, 0]
            count = math.ceil((1 - self.prune) * len(free))
            kept = free[flat[free].abs().topk(count, sorted=False).indices]
            owner[kept] = number
            flat[(owner == _FREE).nonzero()[:, 0]] = 0.0
        self._pruned = True

    @torch.no_grad()
    def _restore(self, strategy: Strategy) -> None:
        """Put the live weights back, also after an evaluation that an exception interrupted."""
        if self._live:
            matrices = _matrices(unwrap_model(strategy.model))
            for name, values in self._live.items():
                matrices[name][self._later[name]] = values
            self._live, self._later = {}, {}


def _refuse_many(tasks: int) -> None:
    if tasks > _MOST:
        raise InputError(
            f"packnet numbers the owner of each weight in a byte, so it learns {_MOST} tasks at "
            f"most, got {tasks}"
        )


def _matrices(model: nn.Module) -> dict[str, nn.Parameter]:
    return {name: p for name, p in graftable_parameters(model).items() if p.dim() == 2}


@register_strategy(
    "packnet",
    family="isolation",
    source="Mallya and Lazebnik, 2018, https://arxiv.org/abs/1711.05769",
    adds="its head; the first task a byte for each weight of the matrices",
    unsupported=PICKED_BY_LABEL,
)
class PackNet:
    """Give every task the largest of the weights that no earlier task owns."""

    prune: float = setting(
        0.5,
        "Share of free weights that a task gives back.",
        min_value=0,
        max_value=1,
        grid=(0.25, 0.5, 0.75),
    )
    retrain: float = setting(
        0.3, "Share of its steps that come after that.", min_value=0, max_value=1
    )

    storage_bytes = count_stored(PackedWeights, "owners")

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return Naive with `PackedWeights`."""
        plugin = PackedWeights(
            prune=self.prune,
            retrain=self.retrain,
            steps={label: schedule.steps for label, schedule in inputs.dense_runs.items()},
        )
        return Naive(
            **inputs.template_arguments(), plugins=inputs.loop_plugins(plugin, trains=True)
        )

    def check_stream(self, shape: StreamShape) -> None:
        """Refuse streams of more tasks than a byte can number."""
        _refuse_many(shape.tasks)

    def task_bytes(self, shape: StreamShape) -> float:
        """Return the bytes of the owners, shared by all tasks."""
        return sum(p.numel() for p in _matrices(shape.model).values()) / shape.tasks
