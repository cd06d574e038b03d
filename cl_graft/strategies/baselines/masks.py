"""Masks: a task is a choice among the weights of the blocks' matrices; weights outside are zero.

A real-valued score stands beside every weight; its mask is a function of the scores, and gradients
pass through the choice as if it were the identity (straight through). Piggyback and SupSup leave
the weights frozen, WSN trains those that no earlier task has chosen. Nothing that an earlier task
is answered with ever moves: backward transfer is exactly 0.

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

from cl_graft.models import TaskModel, graftable_parameters
from cl_graft.strategies.baselines.own_values import (
    OPTIMIZER,
    frozen_but,
    learning_rate,
    with_own_optimizer,
)
from cl_graft.strategies.baselines.stored_bytes import bytes_of, plugin_of
from cl_graft.strategies.heads import carrier_of
from cl_graft.strategies.method_settings import Setting
from cl_graft.strategies.method_size import Room, Size
from cl_graft.strategies.registered import BY_LABEL, StrategyRow
from cl_graft.strategies.strategy_inputs import StrategyInputs

__all__ = ["ROWS", "ChosenWeights", "MaskedMatrices", "above", "largest"]

Rule = Callable[[Tensor], Tensor]
"""From the scores of a matrix to its mask, both of the matrix's shape."""

_START, _THRESHOLD = 1e-2, 5e-3
"""Piggyback's first scores and its threshold: at first every weight is chosen."""


class ChosenWeights(nn.Module):
    """The parametrization of a matrix: its weights where the mask is True, zero elsewhere.

    Args:
        scores: The first scores, of the matrix's shape.
        rule: Chooses by them.
        absolute: Whether it chooses by their absolute values.

    Attributes:
        fixed: A mask to use in place of the rule's.
    """

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
        ranked = self._ranked()
        return weight * (self.chosen().to(weight.dtype) + (ranked - ranked.detach()))

    @torch.no_grad()
    def chosen(self) -> Tensor:
        """Return the rule's mask."""
        return self.rule(self._ranked())

    def _ranked(self) -> Tensor:
        return self.scores.abs() if self.absolute else self.scores


class MaskedMatrices(SupervisedPlugin, supports_distributed=False):
    """Give every task a mask on the matrices of a model's blocks.

    Runs at: before_training_exp, after_backward, after_training_exp, before_eval_exp,
    after_eval_exp.

    Args:
        model: The model; its matrices are parametrized in place.
        rule: From scores to masks.
        start: First scores of a matrix.
        absolute: Whether the rule chooses by the scores' absolute values.
        trains_weights: Whether the weights that no earlier task has chosen train along, and scores
            go on from task to task; else weights stay frozen and scores begin anew.

    Attributes:
        masks: Of every task, by label and matrix: bits, eight to a byte.
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
        self._start = start
        for name, weight in _matrices(model):
            scores = start(weight.detach())
            module = model.get_submodule(name)
            chosen = ChosenWeights(scores, rule, absolute=absolute)
            register_parametrization(module, "weight", chosen)
        self._taken: dict[str, Tensor] = {}

    def before_training_exp(self, strategy: Any, **kwargs: Any) -> None:
        """Start the task's scores."""
        strategy.optimizer.state.clear()
        carrier = carrier_of(strategy.model)
        trained: dict[str, nn.Parameter] = {}
        for name, chosen, weight in _parametrized(carrier):
            chosen.fixed = None
            trained[f"{name} scores"] = chosen.scores
            if self.trains_weights:
                trained[name] = weight
            else:
                chosen.scores.data.copy_(self._start(weight.detach()))
        frozen_but(carrier, trained, label=int(strategy.experience.task_label))

    def after_backward(self, strategy: Any, **kwargs: Any) -> None:
        """Let no weight move that an earlier task has chosen."""
        if self.trains_weights and self._taken:
            for name, _, weight in _parametrized(carrier_of(strategy.model)):
                if weight.grad is not None:
                    weight.grad[self._taken[name]] = 0.0

    def after_training_exp(self, strategy: Any, **kwargs: Any) -> None:
        """Keep the task's masks."""
        own: dict[str, Tensor] = {}
        for name, chosen, _ in _parametrized(carrier_of(strategy.model)):
            mask = chosen.chosen()
            own[name] = _packed(mask)
            self._taken[name] = mask | self._taken.get(name, torch.zeros_like(mask))
        self.masks[int(strategy.experience.task_label)] = own

    def before_eval_exp(self, strategy: Any, **kwargs: Any) -> None:
        """Answer with the task's masks; a task that was not learned is answered as it stands."""
        own = self.masks.get(int(strategy.experience.task_label))
        for name, chosen, weight in _parametrized(carrier_of(strategy.model)):
            chosen.fixed = None if own is None else _unpacked(own[name], weight)

    def after_eval_exp(self, strategy: Any, **kwargs: Any) -> None:
        """Choose by scores again."""
        for _, chosen, _ in _parametrized(carrier_of(strategy.model)):
            chosen.fixed = None

    def held(self, model: nn.Module) -> int:
        """Return the bytes of all masks, and of scores that later tasks go on from."""
        scores = [c.scores for _, c, _ in _parametrized(model)] if self.trains_weights else []
        return bytes_of([self.masks, scores if self.masks else []])


def largest(share: float) -> Rule:
    """Return the rule that chooses a share of each matrix, those with the largest scores."""

    def rule(scores: Tensor) -> Tensor:
        count = max(1, round(share * scores.numel()))
        mask = torch.zeros(scores.numel(), dtype=torch.bool, device=scores.device)
        mask[scores.flatten().topk(count, sorted=False).indices] = True
        return mask.view_as(scores)

    return rule


def above(threshold: float) -> Rule:
    """Return the rule that chooses scores above a threshold."""
    return lambda scores: scores > threshold


def _matrices(model: TaskModel) -> list[tuple[str, nn.Parameter]]:
    """Return the graftable matrices, by the path of their module."""
    chosen: Mapping[str, nn.Parameter] = graftable_parameters(model)
    return [
        (name.removesuffix(".weight"), p)
        for name, p in chosen.items()
        if p.dim() == 2 and name.endswith(".weight")
    ]


def _parametrized(model: nn.Module) -> Iterator[tuple[str, ChosenWeights, nn.Parameter]]:
    """Yield path, choice and underlying weights of every matrix."""
    for name, module in model.named_modules():
        if isinstance(module, nn.utils.parametrize.ParametrizationList):
            yield name, cast(ChosenWeights, module[0]), cast(nn.Parameter, module.original)


def _packed(mask: Tensor) -> Tensor:
    flat = mask.flatten().cpu()
    flat = nn.functional.pad(flat, (0, -len(flat) % 8)).view(-1, 8)
    return (flat * (2 ** torch.arange(8))).sum(1).to(torch.uint8)


def _unpacked(packed: Tensor, like: Tensor) -> Tensor:
    bits = packed[:, None].bitwise_and(2 ** torch.arange(8, dtype=torch.uint8)) != 0
    return bits.flatten()[: like.numel()].view(like.shape).to(like.device, like.dtype)


def _piggyback(inputs: StrategyInputs) -> SupervisedTemplate:
    return with_own_optimizer(
        inputs,
        MaskedMatrices(
            inputs.model.task_model,
            rule=above(_THRESHOLD),
            start=lambda weight: torch.full_like(weight, _START),
        ),
    )


def _supsup(inputs: StrategyInputs) -> SupervisedTemplate:
    rule = largest(inputs.settings["share"])
    return with_own_optimizer(
        inputs, MaskedMatrices(inputs.model.task_model, rule=rule, start=torch.abs)
    )


def _wsn(inputs: StrategyInputs) -> SupervisedTemplate:
    rule = largest(inputs.settings["share"])
    model = inputs.model.task_model
    # The paper's code ranks |scores|, which takes up a weight again whose score went far below 0.
    plugin = MaskedMatrices(model, rule=rule, start=torch.abs, absolute=True, trains_weights=True)
    return with_own_optimizer(inputs, plugin)


def _held(strategy: SupervisedTemplate) -> int:
    return plugin_of(strategy, MaskedMatrices).held(strategy.model)


def _mask_bytes(room: Room, value: int) -> float:
    return sum(math.ceil(weight.numel() / 8) for _, weight in _matrices(room.model))


def _mask_and_score_bytes(room: Room, value: int) -> float:
    scores = bytes_of([weight for _, weight in _matrices(room.model)])
    return _mask_bytes(room, value) + scores / room.tasks


ROWS = (
    StrategyRow(
        "piggyback",
        "isolation",
        "Mallya et al., 2018, https://arxiv.org/abs/1801.06519",
        "everything",
        "head",
        _piggyback,
        settings=(OPTIMIZER, learning_rate(3e-4)),
        grid={"lr": (1e-4, 3e-4, 1e-3)},
        holds=_held,
        refuses=BY_LABEL,
        adds="its head and a bit for each weight of the matrices",
        size=Size(_mask_bytes),
    ),
    StrategyRow(
        "supsup",
        "isolation",
        "Wortsman et al., 2020, https://arxiv.org/abs/2006.14769; on a pretrained base",
        "everything",
        "head",
        _supsup,
        settings=(
            Setting("share", 0.9, "Of each matrix, the weights chosen.", least=0, most=1),
            OPTIMIZER,
            learning_rate(1e-3),
        ),
        grid={"share": (0.7, 0.9), "lr": (3e-4, 1e-3, 3e-3)},
        holds=_held,
        refuses=BY_LABEL,
        adds="its head and a bit for each weight of the matrices",
        size=Size(_mask_bytes),
    ),
    StrategyRow(
        "wsn",
        "isolation",
        "Kang et al., 2022, https://proceedings.mlr.press/v162/kang22b.html",
        "everything",
        "head",
        _wsn,
        settings=(
            Setting("share", 0.5, "Of each matrix, the weights chosen.", least=0, most=1),
            OPTIMIZER,
            learning_rate(3e-4),
        ),
        grid={"share": (0.3, 0.5, 0.7), "lr": (1e-4, 3e-4)},
        holds=_held,
        refuses=BY_LABEL,
        adds="its head and a bit for each weight of the matrices; the first task the scores",
        size=Size(_mask_and_score_bytes),
    ),
)
