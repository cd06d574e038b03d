"""Methods that share out the weights of the blocks' matrices, or use a part of them for a task.

In the papers the networks of SupSup are random, and WSN starts from scratch. Here the base is
pretrained, so scores start at the weights' magnitudes: the first choice is the largest weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import torch
from avalanche.core import SupervisedPlugin
from avalanche.training.templates import SupervisedTemplate
from torch import Tensor, nn
from torch.nn.utils.parametrize import register_parametrization

from cl_graft.errors import InputError
from cl_graft.lab.baselines.own_values import (
    freeze_except_,
    optimizer_setting,
    rate_setting,
    train_own_values,
)
from cl_graft.models import TaskModel, graftable_parameters
from cl_graft.strategies import (
    StrategyInputs,
    count_bytes,
    count_stored,
    register_strategy,
    setting,
)
from cl_graft.strategies.loop.best_step import KeepBest
from cl_graft.strategies.method import PICKED_BY_LABEL, StreamShape
from cl_graft.strategies.strategy import Strategy
from cl_graft.strategies.task_heads import unwrap_model

_FREE = 0
_MOST = 255


class PackedWeights(SupervisedPlugin, supports_distributed=False):
    """Give each task the largest of the weights that it trains, and the others back (PackNet).

    Biases and LayerNorms train with the first task alone. The optimiser must have neither momentum
    nor weight decay: they would move weights whose gradient is 0.

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
            largest = free[flat[free].abs().topk(count, sorted=False).indices]
            owner[largest] = number
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
        return train_own_values(inputs, plugin, optimizer="sgd")

    def check_stream(self, shape: StreamShape) -> None:
        """Refuse streams of more tasks than a byte can number."""
        if shape.tasks > _MOST:
            raise InputError(
                f"packnet numbers the owner of each weight in a byte, so it learns {_MOST} tasks "
                f"at most, got {shape.tasks}"
            )

    def task_bytes(self, shape: StreamShape) -> float:
        """Return the bytes of the owners, shared by all tasks."""
        return sum(p.numel() for p in _matrices(shape.model).values()) / shape.tasks


Rule = Callable[[Tensor], Tensor]
"""Takes the scores of a matrix and returns its mask, both of the matrix's shape."""


class ChosenWeights(nn.Module):
    """The parametrization of a matrix: its weights where the mask is True, zero elsewhere."""

    def __init__(self, scores: Tensor, rule: Rule, *, absolute: bool = False) -> None:
        super().__init__()
        self.scores = nn.Parameter(scores)
        self.rule = rule
        self.absolute = absolute
        self.fixed: Tensor | None = None

    def forward(self, weight: Tensor) -> Tensor:
        """Return the chosen weights."""
        if self.fixed is not None:
            return weight * self.fixed
        # The difference is exactly 0, and hands the gradient of the mask to the scores.
        ranked = self._rank()
        return weight * (self.choose().to(weight.dtype) + (ranked - ranked.detach()))

    @torch.no_grad()
    def choose(self) -> Tensor:
        """Return the rule's mask."""
        return self.rule(self._rank())

    def _rank(self) -> Tensor:
        return self.scores.abs() if self.absolute else self.scores


class MaskedMatrices(SupervisedPlugin, supports_distributed=False):
    """Give every task a mask on the blocks' matrices, by real-valued scores of the weights.

    The choice's gradient goes to the scores as if it were the identity (straight through). Weights
    stay frozen, or those train that no earlier task has chosen (`trains_weights`).

    Runs at: before_training_exp, after_backward, after_training_exp, before_eval_exp,
    after_eval_exp.
    """

    def __init__(
        self,
        model: TaskModel,
        *,
        rule: Rule,
        start: Callable[[Tensor], Tensor],
        absolute: bool = False,
        trains_weights: bool = False,
    ) -> None:
        super().__init__()
        self.trains_weights = trains_weights
        self.masks: dict[int, dict[str, Tensor]] = {}
        self.scores: dict[str, Tensor] = {}
        self._start = start
        for name, weight in find_matrices(model):
            scores = start(weight.detach())
            module = model.get_submodule(name)
            chosen = ChosenWeights(scores, rule, absolute=absolute)
            register_parametrization(module, "weight", chosen)
        self._taken: dict[str, Tensor] = {}

    def before_training_exp(self, strategy: Strategy, **kwargs: Any) -> None:
        """Start the task's scores."""
        strategy.optimizer.state.clear()
        model = unwrap_model(strategy.model)
        trained: dict[str, nn.Parameter] = {}
        for name, chosen, weight in _find_parametrized(model):
            chosen.fixed = None
            trained[f"{name} scores"] = chosen.scores
            if self.trains_weights:
                trained[name] = weight
            else:
                chosen.scores.data.copy_(self._start(weight.detach()))
        freeze_except_(model, trained, label=int(strategy.experience.task_label))

    def after_backward(self, strategy: Strategy, **kwargs: Any) -> None:
        """Zero the gradients of the weights that an earlier task has chosen."""
        if self.trains_weights and self._taken:
            for name, _, weight in _find_parametrized(unwrap_model(strategy.model)):
                if weight.grad is not None:
                    weight.grad[self._taken[name]] = 0.0

    def after_training_exp(self, strategy: Strategy, **kwargs: Any) -> None:
        """Keep the task's masks."""
        masks: dict[str, Tensor] = {}
        for name, chosen, _ in _find_parametrized(unwrap_model(strategy.model)):
            mask = chosen.choose()
            masks[name] = pack_bits(mask)
            if self.trains_weights:
                self.scores[name] = chosen.scores
            self._taken[name] = mask | self._taken.get(name, torch.zeros_like(mask))
        self.masks[int(strategy.experience.task_label)] = masks

    def before_eval_exp(self, strategy: Strategy, **kwargs: Any) -> None:
        """Answer with the task's masks; an unlearned task is answered with the current ones."""
        masks = self.masks.get(int(strategy.experience.task_label))
        for name, chosen, weight in _find_parametrized(unwrap_model(strategy.model)):
            chosen.fixed = None if masks is None else unpack_bits(masks[name], weight)

    def after_eval_exp(self, strategy: Strategy, **kwargs: Any) -> None:
        """Choose by scores again."""
        for _, chosen, _ in _find_parametrized(unwrap_model(strategy.model)):
            chosen.fixed = None


def choose_largest(share: float) -> Rule:
    """Return the rule that chooses a share of each matrix, those with the largest scores."""

    def rule(scores: Tensor) -> Tensor:
        count = max(1, round(share * scores.numel()))
        mask = torch.zeros(scores.numel(), dtype=torch.bool, device=scores.device)
        mask[scores.flatten().topk(count, sorted=False).indices] = True
        return mask.view_as(scores)

    return rule


def find_matrices(model: TaskModel) -> list[tuple[str, nn.Parameter]]:
    """Return the graftable matrices, by the path of their module."""
    matrices = _matrices(model).items()
    return [(n.removesuffix(".weight"), p) for n, p in matrices if n.endswith(".weight")]


def _find_parametrized(model: nn.Module) -> Iterator[tuple[str, ChosenWeights, nn.Parameter]]:
    """Yield path, choice and underlying weights of every matrix."""
    for name, module in model.named_modules():
        if isinstance(module, nn.utils.parametrize.ParametrizationList):
            yield name, cast(ChosenWeights, module[0]), cast(nn.Parameter, module.original)


def pack_bits(mask: Tensor) -> Tensor:
    """Return a mask as bits, eight to a byte."""
    flat = mask.flatten().cpu()
    flat = nn.functional.pad(flat, (0, -len(flat) % 8)).view(-1, 8)
    return (flat * (2 ** torch.arange(8))).sum(1).to(torch.uint8)


def unpack_bits(packed: Tensor, like: Tensor) -> Tensor:
    """Return a mask as 0 and 1, in the shape, dtype and device of `like`."""
    bits = packed[:, None].bitwise_and(2 ** torch.arange(8, dtype=torch.uint8)) != 0
    return bits.flatten()[: like.numel()].view(like.shape).to(like.device, like.dtype)


def count_mask_bytes(shape: StreamShape) -> float:
    """Return the bytes of a task's masks."""
    return sum(math.ceil(weight.numel() / 8) for _, weight in find_matrices(shape.model))


_START, _THRESHOLD = 1e-2, 5e-3
"""First scores and threshold: at first every weight is used."""


@register_strategy(
    "piggyback",
    family="isolation",
    source="Mallya et al., 2018, https://arxiv.org/abs/1801.06519",
    adds="its head and a bit for each weight of the matrices",
    unsupported=PICKED_BY_LABEL,
)
class Piggyback:
    """Give every task a mask on the frozen base: a weight is used where its score is high."""

    optimizer: str = optimizer_setting()
    lr: float = rate_setting(3e-4, grid=(1e-4, 3e-4, 1e-3))

    storage_bytes = count_stored(MaskedMatrices, "masks")

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return Naive with `MaskedMatrices`."""
        plugin = MaskedMatrices(
            inputs.model.task_model,
            rule=lambda scores: scores > _THRESHOLD,
            start=lambda weight: torch.full_like(weight, _START),
        )
        return train_own_values(inputs, plugin, optimizer=self.optimizer)

    def task_bytes(self, shape: StreamShape) -> float:
        """Return the bytes of the masks."""
        return count_mask_bytes(shape)


@register_strategy(
    "wsn",
    family="isolation",
    source="Kang et al., 2022, https://proceedings.mlr.press/v162/kang22b.html",
    adds="its head and a bit for each weight of the matrices; the first task the scores",
    unsupported=PICKED_BY_LABEL,
)
class WSN:
    """Give every task the weights with the largest scores, and train those that are still free."""

    share: float = setting(
        0.5, "Share of each matrix that is used.", min_value=0, max_value=1, grid=(0.3, 0.5, 0.7)
    )
    optimizer: str = optimizer_setting()
    lr: float = rate_setting(3e-4, grid=(1e-4, 3e-4))

    storage_bytes = count_stored(MaskedMatrices, "masks", "scores")

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return Naive with `MaskedMatrices` that train weights, too."""
        # The paper's code ranks |scores|, so a weight whose score went far below 0 comes back.
        plugin = MaskedMatrices(
            inputs.model.task_model,
            rule=choose_largest(self.share),
            start=torch.abs,
            absolute=True,
            trains_weights=True,
        )
        return train_own_values(inputs, plugin, optimizer=self.optimizer)

    def task_bytes(self, shape: StreamShape) -> float:
        """Return the bytes of the masks and, shared by all tasks, of the scores."""
        scores = count_bytes([weight for _, weight in find_matrices(shape.model)])
        return count_mask_bytes(shape) + scores / shape.tasks
