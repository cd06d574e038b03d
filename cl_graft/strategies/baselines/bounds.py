"""Bounds: what forgetting costs at most, and what could be had if nothing had to be forgotten.

Cumulative and joint training are Naive on the rows of several tasks, shuffled together. Avalanche's
own `Cumulative` and `JointTraining` put rows of every task into each batch, so they need batches of
as many rows as there are tasks, and `JointTraining` can be called only once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from avalanche.core import SupervisedPlugin
from avalanche.training.plugins import FromScratchTrainingPlugin
from avalanche.training.supervised import Naive
from avalanche.training.templates import SupervisedTemplate
from torch import Tensor

from cl_graft.grafts.graft import load_
from cl_graft.strategies.baselines.stored_bytes import bytes_of
from cl_graft.strategies.independent import IndependentPlugin
from cl_graft.strategies.loop.best_step import KeepBest
from cl_graft.strategies.loop.text_batches import shuffled_batches
from cl_graft.strategies.registered import BY_LABEL, Memory, StrategyRow
from cl_graft.strategies.strategy_inputs import StrategyInputs
from cl_graft.training.examples import Examples
from cl_graft.training.passes import Passes

__all__ = ["ROWS", "WEIGHTS", "RowsOf"]


class RowsOf(SupervisedPlugin, supports_distributed=False):
    """Train on the rows of several experiences, shuffled together, in place of the one at hand.

    Runs at: before_training_exp. Give it after `TextBatches`, whose loader it replaces.

    Args:
        stream: Experiences that `text_stream` made.
        so_far: Whether to take those up to the one at hand, or all.
        seed: Draws the order of rows.
        group_by_length: Make batches of rows of similar length.

    Attributes:
        passes: Rows that went through the model, by task label and phase, where nothing trains.
    """

    def __init__(
        self, stream: Sequence[Any], *, so_far: bool, seed: int, group_by_length: bool = False
    ) -> None:
        super().__init__()
        self.stream = list(stream)
        self.so_far = so_far
        self.seed = seed
        self.group_by_length = group_by_length
        self.passes: dict[int, dict[str, Passes]] = {}

    def before_training_exp(self, strategy: Any, **kwargs: Any) -> None:
        """Set the loader; nothing is left to train where all was learned at once."""
        if not self.so_far and strategy.clock.train_exp_counter:
            self.passes[int(strategy.experience.task_label)] = {"train": Passes()}
            strategy.stop_training()
            return
        count = strategy.clock.train_exp_counter + 1 if self.so_far else len(self.stream)
        chosen = self.stream[:count]
        inputs = torch.cat([experience.encoded[0] for experience in chosen])
        targets = torch.cat([experience.encoded[1] for experience in chosen])
        labels = torch.cat([torch.full((len(e.encoded[1]),), int(e.task_label)) for e in chosen])
        for plugin in strategy.plugins:
            if isinstance(plugin, KeepBest):
                plugin.labels = [int(experience.task_label) for experience in chosen]
        strategy.dataloader = shuffled_batches(
            Examples(range(len(targets)), tensors=(inputs, targets)),
            labels,
            size=strategy.train_mb_size,
            seed=self.seed,
            group_by_length=self.group_by_length,
        )

    def held(self, tasks: int) -> int:
        """Return the bytes of the rows of the first tasks."""
        return sum(bytes_of(experience.encoded) for experience in self.stream[:tasks])


def _naive(inputs: StrategyInputs) -> SupervisedTemplate:
    return inputs.naive()


def _from_scratch(inputs: StrategyInputs) -> SupervisedTemplate:
    plugin: Any = FromScratchTrainingPlugin()
    return inputs.naive(plugin)


def _cumulative(inputs: StrategyInputs) -> SupervisedTemplate:
    return inputs.naive(_rows_of(inputs, so_far=True))


def _joint(inputs: StrategyInputs) -> SupervisedTemplate:
    # All tasks are learned at once, so all heads are there from the start.
    for experience in inputs.stream.benchmark.train_stream:
        inputs.model.adaptation(experience)
    return inputs.naive(_rows_of(inputs, so_far=False))


def _rows_of(inputs: StrategyInputs, *, so_far: bool) -> RowsOf:
    stream = inputs.stream.benchmark.train_stream
    grouped = inputs.first_schedule.group_by_length
    return RowsOf(stream, so_far=so_far, seed=inputs.seed, group_by_length=grouped)


def _independent(inputs: StrategyInputs) -> SupervisedTemplate:
    plugin = IndependentPlugin(
        inputs.dense_runs,
        base=inputs.identify_base().fingerprint,
        dev=inputs.dev,
        metrics=inputs.metrics,
        seed=inputs.seed,
        cache=inputs.cache,
        checkpoints=inputs.checkpoints,
        progress=inputs.progress,
    )
    return Naive(**inputs.template_arguments(), plugins=inputs.loop_plugins(plugin))


def _past_rows(strategy: SupervisedTemplate) -> int:
    (plugin,) = (plugin for plugin in strategy.plugins if isinstance(plugin, RowsOf))
    return plugin.held(strategy.clock.train_exp_counter)


def _weights(strategy: SupervisedTemplate) -> dict[str, Tensor]:
    return {name: p.detach() for name, p in strategy.model.named_parameters()}


def _know_by_weights(
    strategy: SupervisedTemplate, learned: Sequence[Any], tensors: Mapping[str, Tensor]
) -> None:
    load_(strategy.model, tensors)


def _know_by_cache(
    strategy: SupervisedTemplate, learned: Sequence[Any], tensors: Mapping[str, Tensor]
) -> None:
    for plugin in strategy.plugins:
        if isinstance(plugin, IndependentPlugin):
            plugin.recall(strategy, learned)


WEIGHTS = Memory(_know_by_weights, remember=_weights)
"""Of strategies that know nothing but the model's weights."""

ROWS = (
    StrategyRow(
        "naive",
        "lower bound",
        "Avalanche's Naive",
        "everything",
        "head",
        _naive,
        WEIGHTS,
    ),
    StrategyRow(
        "from_scratch",
        "lower bound",
        "Avalanche's FromScratchTraining: every task begins at the base again",
        "everything",
        "head",
        _from_scratch,
    ),
    StrategyRow(
        "cumulative",
        "upper bound",
        "as Avalanche's Cumulative: on the rows of all tasks so far",
        "everything",
        "head",
        _cumulative,
        WEIGHTS,
        holds=_past_rows,
        adds="its head and all its rows",
        budget="so far",
    ),
    StrategyRow(
        "joint",
        "upper bound",
        "as Avalanche's JointTraining: on the rows of all tasks at once, before the first",
        "everything",
        "head",
        _joint,
        WEIGHTS,
        budget="stream",
    ),
    StrategyRow(
        "independent",
        "upper bound",
        "Panigrahi et al., 2023, https://arxiv.org/abs/2302.06600, Table 4",
        "nothing",
        "model",
        _independent,
        Memory(_know_by_cache),
        refuses=BY_LABEL,
        adds="a whole model",
    ),
)
