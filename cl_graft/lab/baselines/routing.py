"""Strategies that answer without task labels: a router picks an entry of the bank for each row."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import torch
from avalanche.core import SupervisedPlugin
from avalanche.training.templates import SupervisedTemplate
from torch import Tensor

from cl_graft.grafts.bank import GraftBank
from cl_graft.grafts.model_state import preserve_modes
from cl_graft.inference.routing_rules import ClassStatistics, discriminant
from cl_graft.models import TaskModel
from cl_graft.strategies import StrategyInputs, count_bytes, register_strategy, setting
from cl_graft.strategies.grafting_methods import ENTRY, REGION_RATES, make_grafting_plugin
from cl_graft.strategies.grafting_plugin import GraftingPlugin
from cl_graft.strategies.loop.steps_and_rates import ClipGradient
from cl_graft.strategies.method import HEAD_PER_TASK, StreamShape
from cl_graft.strategies.task_heads import unwrap_model
from cl_graft.training.examples import Examples
from cl_graft.training.learnable_task import Passes

Answers = tuple[Tensor, Tensor]
"""The task label that answers each row, (n,), and logits as wide as the widest task's."""


FeatureRule = Callable[[Tensor, ClassStatistics], Tensor]
"""Takes features, (n, d), and statistics of classes; returns positions of entries, (n,)."""


class RoutedText(SupervisedTemplate):
    """A strategy that picks the task of every text by itself in evaluation.

    An evaluation while a task trains uses the given task labels: a router knows finished tasks
    only.

    Args:
        learner: Plugin that learns the tasks.
        router: Plugin that picks the tasks.
        plugins: More plugins; they run after these.
        **template: Arguments of `SupervisedTemplate`; the model is a `MultiTaskText`.

    Attributes:
        answered_by: The task label that answered each row of the batch, (n,); None if the label
            was given.
    """

    def __init__(
        self,
        *,
        learner: GraftingPlugin,
        router: FeatureRouter,
        plugins: Sequence[Any] = (),
        **template: Any,
    ) -> None:
        super().__init__(plugins=[learner, router, *plugins], **template)
        self.answered_by: Tensor | None = None
        self.learner = learner
        self.router = router

    @property
    def bank(self) -> GraftBank | None:
        """The entries of the tasks so far; None before the first task."""
        return self.learner.bank

    def find_label(self, position: int) -> int:
        """Return the task label that an entry answers."""
        if self.bank is None:
            raise ValueError("nothing was learned yet")
        return self.bank.entries[position].label

    def positions(self) -> range:
        """Return the entries that can be answered."""
        return range(len(self.bank) if self.bank else 0)

    def carry(self, position: int | None) -> None:
        """Make the model carry the answer of an entry; None: the base."""
        self.learner.carry(self.model, position)

    def forward(self) -> Tensor:
        """Return the logits of the batch; in evaluation from the tasks that the router picks."""
        self.answered_by = None
        if self.is_training or self.learner.learning or not self.positions():
            return super().forward()
        self.answered_by, logits = self.router.answer(self, self.mb_x)
        return logits


class FeatureRouter(SupervisedPlugin, supports_distributed=False):
    """Pick tasks by the features that the frozen base gives a text.

    A text costs two forward passes: one of the base, one of its task. Training rows of a task go
    through the base once, when it is learned; only sums over them are kept.

    Runs at: after_training_exp. Give it after the plugin that learns the tasks.

    Args:
        rule: Rule that picks tasks.
        size: Number of features.
        depth: Place in the base of the features, in [0, 1]; see `TaskModel.features_at`.

    Attributes:
        known: Statistics of the classes learned so far.
    """

    def __init__(self, rule: FeatureRule, *, size: int, depth: float) -> None:
        super().__init__()
        self.rule = rule
        self.depth = depth
        self.known = ClassStatistics.empty(size)

    def after_training_exp(self, strategy: Any, **kwargs: Any) -> None:
        """Learn the task's classes."""
        started = time.perf_counter()
        experience = strategy.experience
        label = int(experience.task_label)
        position = len(strategy.positions()) - 1
        if position < 0 or strategy.find_label(position) != label:
            return
        tensors = getattr(experience, "encoded", None)
        rows = Examples(experience.dataset.eval(), tensors=tensors)
        order, size = rows.sort_by_length(range(len(rows))), strategy.eval_mb_size
        batches = [rows.batch(order[first : first + size]) for first in range(0, len(order), size)]
        strategy.carry(None)
        with preserve_modes(strategy.model), torch.no_grad():
            strategy.model.eval()
            features = [
                self._features(strategy, inputs.to(strategy.device)) for inputs, _ in batches
            ]
        strategy.carry(position)
        targets = torch.cat([targets for _, targets in batches])
        self.known = self.known.with_rows(torch.cat(features), targets, task=position)
        strategy.learner.passes[label]["router"] = Passes(forward=len(rows))
        strategy.learner.seconds[label]["router"] = time.perf_counter() - started

    def answer(self, strategy: RoutedText, x: Tensor) -> Answers:
        """Pick tasks, then have each answer its own rows."""
        strategy.carry(None)
        picked = self.rule(self._features(strategy, x), self.known).to(x.device)
        known = [strategy.find_label(position) for position in strategy.positions()]
        labels = torch.tensor(known, device=picked.device)[picked]
        parts = {at: (picked == at).nonzero().squeeze(1) for at in strategy.positions()}
        answers: list[Tensor] = []
        for position, part in parts.items():
            if len(part):
                strategy.carry(position)
                answers.append(strategy.model(x[part], labels[part]))
        order = torch.cat(list(parts.values())).argsort()
        return labels, torch.cat(answers)[order]

    def _features(self, strategy: RoutedText, x: Tensor) -> Tensor:
        return cast(TaskModel, unwrap_model(strategy.model)).features_at(x, self.depth)

    def tensors(self) -> dict[str, Tensor]:
        """Return what is kept, by name; nothing before the first task."""
        return dict(vars(self.known)) if len(self.known.counts) else {}

    def load_(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over what `tensors` returned."""
        self.known = replace(self.known, **dict(tensors))


@register_strategy(
    "grafting_by_discriminant",
    source="linear discriminant analysis of the base's features: Hayes and Kanan, 2020, "
    "https://arxiv.org/abs/1909.01520",
    adds=f"{ENTRY}; the mean features of its classes; the first task their covariance",
    family="grafting",
    trains="region",
    stored_as="entry",
    config_grid=REGION_RATES,
    unsupported=HEAD_PER_TASK,
    encoders_only=True,
    kinds="classification",
)
class GraftingByDiscriminant:
    """Learn as grafting does, and pick the likeliest task if features are normally distributed."""

    depth: float = setting(
        0.33,
        "Where in the base a router takes features: 0 the embeddings, 1 the last block.",
        min_value=0,
        max_value=1,
        grid=(0.33, 1.0),
    )
    shrinkage: float = setting(
        0.03,
        "Share of the covariance that is replaced by that of equally spread features.",
        min_value=1e-6,
        max_value=1,
    )

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return grafting with a router by a discriminant."""
        rule = partial(discriminant, shrinkage=self.shrinkage)
        size = inputs.model.task_model.hidden_size
        return RoutedText(
            **inputs.template_arguments(optimizer=inputs.region_optimizer, head_group=True),
            learner=make_grafting_plugin(inputs),
            router=FeatureRouter(rule, size=size, depth=self.depth),
            plugins=inputs.loop_plugins(ClipGradient(inputs.clip)),
        )

    @staticmethod
    def storage_bytes(strategy: Any) -> int:
        """Return the bytes of what the router knows."""
        return count_bytes(strategy.router.tensors())

    @staticmethod
    def state(strategy: Any) -> dict[str, Tensor]:
        """Return what the router knows."""
        return strategy.router.tensors()

    @staticmethod
    def load_state_(
        strategy: Any, experiences: Sequence[Any], tensors: Mapping[str, Tensor]
    ) -> None:
        """Give the router what another one knew; the plugin was made with the bank."""
        strategy.router.load_(tensors)

    def task_bytes(self, shape: StreamShape) -> float:
        """Return the bytes of the class means and, shared by all tasks, of one covariance."""
        size = shape.model.hidden_size
        return shape.classes * (4 * size + 24) + 4 * size**2 / shape.tasks
