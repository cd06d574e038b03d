"""The strategies of experiments, one row each: what it is, where it comes from, how it is built."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import torch
from avalanche.core import SupervisedPlugin
from avalanche.training.plugins import EvaluationPlugin
from avalanche.training.supervised import Naive
from avalanche.training.templates import SupervisedTemplate
from torch import Tensor, nn

from cl_graft.bank import BaseIdentity, GraftBank
from cl_graft.caching import Cache
from cl_graft.checkpointing import Checkpoints
from cl_graft.errors import InputError, nearest
from cl_graft.graft import load_
from cl_graft.learning import GraftingSettings
from cl_graft.precision import loss_scale
from cl_graft.strategies.batches import TextBatches
from cl_graft.strategies.grafting import GraftingContinual
from cl_graft.strategies.independent import IndependentPlugin
from cl_graft.strategies.multitask import MultiTaskText
from cl_graft.strategies.plugin import GraftingPlugin
from cl_graft.strategies.precision import MicroBatches, ScaleLoss
from cl_graft.strategies.resuming import Resuming
from cl_graft.strategies.session import TaskFacts
from cl_graft.strategies.steps import ClipGradient, LinearDecay, SeededLoop
from cl_graft.strategies.watch import StopDiverged
from cl_graft.tasks.benchmark import TextStream
from cl_graft.training import FineTuning

__all__ = ["STRATEGIES", "Ingredients", "Memory", "StrategyRow", "find_strategy"]


@dataclass(frozen=True, eq=False)
class Ingredients:
    """What strategies are built from; each takes what it needs.

    Attributes:
        model: The model at its base.
        stream: The tasks.
        facts: What to record of each task, by task label.
        identity: The base.
        grafting: Settings of grafting, by task label.
        dense: Settings of dense training, by task label.
        seed: Every random choice is a function of it.
        clip: Largest norm of a gradient.
        region_decay: Whether the region's learning rate falls to 0.
        eval_batch: Rows a batch in evaluation.
        device: Where to run.
        evaluator: Measures, and where they are logged.
        plugins: Plugins of the host (budgets, progress), for every strategy.
        cache: Answers what was computed before.
        bank: What grafting learned before, in a run that goes on.
        checkpoints: Where phases that were interrupted are taken up, and kept on the way.
        aside: Returns what else to keep with every state of the strategy's loop; see `Resuming`.
        on_entry: Called with the bank after every new entry.
        progress: Called as (phase, step, steps) in phases of a strategy's own.
    """

    model: MultiTaskText
    stream: TextStream
    facts: Mapping[int, TaskFacts]
    identity: BaseIdentity
    grafting: Mapping[int, GraftingSettings]
    dense: Mapping[int, FineTuning]
    seed: int
    clip: float
    region_decay: bool
    eval_batch: int
    device: torch.device
    evaluator: EvaluationPlugin
    plugins: Sequence[SupervisedPlugin] = ()
    cache: Cache | None = None
    bank: GraftBank | None = None
    checkpoints: Checkpoints | None = None
    aside: Callable[[], Mapping[str, Any]] = dict
    on_entry: Callable[[GraftBank], None] | None = None
    progress: Callable[[str, int, int], None] | None = None

    @property
    def metrics(self) -> dict[int, str]:
        """The score of each task, by task label."""
        return {label: facts.metric for label, facts in self.facts.items()}

    @property
    def dev(self) -> Any:
        """The experiences with rows for choosing."""
        return self.stream.benchmark.valid_stream

    def plugins_around(self, *own: SupervisedPlugin) -> list[SupervisedPlugin]:
        """Return the plugins of a host's loop around a strategy's `own`, in their order."""
        settings = next(iter(self.dense.values()))
        scale = loss_scale(self.model.task_model.precision)
        return [
            TextBatches(self.seed, group_by_length=settings.group_by_length),
            *([MicroBatches(settings.micro_batch, scale=scale)] if settings.micro_batch else []),
            *own,
            *self.plugins,
            *([ScaleLoss(scale)] if scale else []),
            # Last, so that it restores what the others have set up.
            *([Resuming(self.checkpoints, self.aside)] if self.checkpoints else []),
        ]

    def host(self, *, weight_decay: float = 0.0) -> dict[str, Any]:
        """Return what every Avalanche strategy is constructed with: SGD, evaluation, device.

        The learning rate, batch size and epochs are placeholders: each experience has its own.
        """
        return {
            "model": self.model,
            "optimizer": torch.optim.SGD(
                self.model.parameters(), lr=1.0, weight_decay=weight_decay
            ),
            "criterion": nn.CrossEntropyLoss(),
            "eval_mb_size": self.eval_batch,
            "device": self.device,
            "evaluator": self.evaluator,
        }


@dataclass(frozen=True)
class Memory:
    """How a strategy goes on after tasks that another process learned.

    Attributes:
        remember: Returns what the strategy knows beside the bank and the cache: tensors by name.
        recall: Makes a new strategy know it, given the experiences that were learned; the model
            has their heads already.
    """

    remember: Callable[[SupervisedTemplate], dict[str, Tensor]]
    recall: Callable[[SupervisedTemplate, Sequence[Any], Mapping[str, Tensor]], None]


@dataclass(frozen=True)
class StrategyRow:
    """One strategy.

    Attributes:
        name: As configs and the command line know it.
        family: Its kind.
        source: Paper or library.
        trains: What the strategy's own loop trains: every weight, a region (at the region's
            learning rate), or nothing.
        keeps: What a task adds to what must be stored: an entry of a bank, a whole model, or
            just its head.
        build: Makes it.
        memory: How it goes on in another process; None for a strategy whose plugins know what
            cannot be kept in our files: its run begins anew, and ends on the same bits.
    """

    name: str
    family: Literal["grafting", "lower bound", "upper bound"]
    source: str
    trains: Literal["everything", "region", "nothing"]
    keeps: Literal["entry", "model", "head"]
    build: Callable[[Ingredients], SupervisedTemplate]
    memory: Memory | None = None


def find_strategy(name: str) -> StrategyRow:
    """Look a strategy up.

    Raises:
        InputError: If there is none of this name; the nearest one is named.
    """
    if name not in STRATEGIES:
        raise InputError(f"unknown strategy {name!r}; {nearest(name, STRATEGIES)}")
    return STRATEGIES[name]


def _grafting(given: Ingredients) -> SupervisedTemplate:
    plugin = GraftingPlugin(
        next(iter(given.grafting.values())),
        by_label=given.grafting,
        bank=given.bank,
        dev=given.dev,
        facts=given.facts,
        identity=given.identity,
        cache=given.cache,
        checkpoints=given.checkpoints,
        on_entry=given.on_entry,
        progress=given.progress,
    )
    decay = [LinearDecay(lr=1.0, steps=1)] if given.region_decay else []
    plugins = given.plugins_around(ClipGradient(given.clip), *decay)
    return GraftingContinual(**given.host(), grafting=plugin, plugins=plugins)


def _naive(given: Ingredients) -> SupervisedTemplate:
    decay = next(iter(given.dense.values())).weight_decay
    own = (SeededLoop(given.seed), StopDiverged(), ClipGradient(given.clip))
    plugins = given.plugins_around(*own)
    return Naive(**given.host(weight_decay=decay), plugins=plugins)


def _independent(given: Ingredients) -> SupervisedTemplate:
    plugin = IndependentPlugin(
        given.dense,
        base=given.identity.fingerprint,
        dev=given.dev,
        metrics=given.metrics,
        seed=given.seed,
        cache=given.cache,
        checkpoints=given.checkpoints,
        progress=given.progress,
    )
    return Naive(**given.host(), plugins=given.plugins_around(plugin))


def _nothing(strategy: SupervisedTemplate) -> dict[str, Tensor]:
    return {}


def _weights(strategy: SupervisedTemplate) -> dict[str, Tensor]:
    return {name: p.detach() for name, p in strategy.model.named_parameters()}


def _know_by_bank(
    strategy: SupervisedTemplate, learned: Sequence[Any], tensors: Mapping[str, Tensor]
) -> None:
    """Do nothing: the plugin was made with the bank."""


def _know_by_cache(
    strategy: SupervisedTemplate, learned: Sequence[Any], tensors: Mapping[str, Tensor]
) -> None:
    for plugin in strategy.plugins:
        if isinstance(plugin, IndependentPlugin):
            plugin.recall(strategy, learned)


def _know_by_weights(
    strategy: SupervisedTemplate, learned: Sequence[Any], tensors: Mapping[str, Tensor]
) -> None:
    load_(strategy.model, tensors)


_PAPER = "https://arxiv.org/abs/2302.06600"
_ROWS = (
    StrategyRow(
        "grafting",
        "grafting",
        f"Panigrahi et al., 2023, {_PAPER}",
        "region",
        "entry",
        _grafting,
        Memory(_nothing, _know_by_bank),
    ),
    StrategyRow(
        "naive",
        "lower bound",
        "Avalanche's Naive",
        "everything",
        "head",
        _naive,
        Memory(_weights, _know_by_weights),
    ),
    StrategyRow(
        "independent",
        "upper bound",
        f"Panigrahi et al., 2023, {_PAPER}, Table 4",
        "nothing",
        "model",
        _independent,
        Memory(_nothing, _know_by_cache),
    ),
)

STRATEGIES: Mapping[str, StrategyRow] = MappingProxyType({row.name: row for row in _ROWS})
