"""What a table of strategies says of each: where it comes from, what it needs, how it is built."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, Literal

from avalanche.training.templates import SupervisedTemplate
from torch import Tensor

from cl_graft.strategies.method_settings import Setting, Value
from cl_graft.strategies.method_size import Size
from cl_graft.strategies.strategy_inputs import StrategyInputs

__all__ = ["BY_LABEL", "OWN_HEADS", "Budget", "Family", "Memory", "StrategyRow", "listed_only"]

Family = Literal[
    "grafting",
    "ablation",
    "merging",
    "lower bound",
    "upper bound",
    "penalty",
    "distillation",
    "rehearsal",
    "isolation",
]
_BY_LABEL = "what is a task's own is picked by the task's label"
BY_LABEL: Mapping[str, str] = {"domain": _BY_LABEL, "class": _BY_LABEL}
"""What `StrategyRow.refuses` says of strategies that cannot answer without task labels."""

_OWN_HEADS = "each task has a head of its own, as in the scenario 'task'"
OWN_HEADS: Mapping[str, str] = {"domain": _OWN_HEADS, "class": _OWN_HEADS}
"""The same of strategies that answer task-labelled streams without labels."""

Budget = Literal["task", "so far", "stream"]


@dataclass(frozen=True)
class Memory:
    """How a strategy goes on after tasks that another process learned.

    Attributes:
        recall: Makes a new strategy know it, given the experiences that were learned; the model
            has their heads already.
        remember: Returns what the strategy knows beside the bank and the cache: tensors by name.
    """

    recall: Callable[[SupervisedTemplate, Sequence[Any], Mapping[str, Tensor]], None]
    remember: Callable[[SupervisedTemplate], dict[str, Tensor]] = lambda strategy: {}


@dataclass(frozen=True)
class StrategyRow:
    """One strategy.

    Attributes:
        name: As configs and the command line know it.
        family: Its kind; ablations are of grafting.
        source: Paper or library.
        trains: What the strategy's own loop trains: every weight, a region (at the region's
            learning rate), parts of a task's own, or nothing.
        keeps: What a task adds to what must be stored: an entry of a bank, a whole model, or
            its head and what the strategy `holds`.
        build: Makes it.
        memory: How it goes on in another process; None for a strategy whose plugins know what
            cannot be kept in our files: its run begins anew, and ends on the same bits.
        settings: Its own settings.
        grid: Values to choose among on dev, by the name of a setting of its own or of a field of
            the experiment's config; every combination is tried. What a strategy may store is no
            part of it.
        holds: Returns the bytes that it holds between two tasks beside the one model with its
            heads: copies of weights, importances, rows of earlier tasks.
        adds: What a task adds, in words.
        size: The same in bytes, and what sets it; None where that is a copy of something. Of what
            is sized by the density (entries of a bank, merged grafts), the bytes beside the graft.
        budget: Whose steps a task may take: its own, those of all tasks so far together (as many
            passes over each row as its own task takes), or those of the whole stream at once.
        imposes: Fields of the experiment's config that it sets, whatever the config says.
        refuses: Why it cannot run in a scenario of the experiment's config, by scenario.
        encoders_only: Whether it needs an encoder's features.
        picks_task: Whether it is asked without task labels: its answers are among the labels of all
            tasks learned so far.
        needs: A package that it needs and this one does not bring.
        broken: Why it cannot run at all with the versions that this package is for.
    """

    name: str
    family: Family
    source: str
    trains: Literal["everything", "region", "its own", "nothing"]
    keeps: Literal["entry", "model", "head"]
    build: Callable[[StrategyInputs], SupervisedTemplate]
    memory: Memory | None = None
    settings: tuple[Setting, ...] = ()
    grid: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    holds: Callable[[SupervisedTemplate], int] = lambda strategy: 0
    adds: str = "its head"
    size: Size | None = None
    budget: Budget = "task"
    imposes: Mapping[str, Any] = field(default_factory=dict)
    refuses: Mapping[str, str] = field(default_factory=dict)
    encoders_only: bool = False
    picks_task: bool = False
    needs: str = ""
    broken: str = ""

    @property
    def bound(self) -> bool:
        """Whether it is a measure of the others, not a way to learn a stream."""
        return self.family in ("lower bound", "upper bound")

    @property
    def has_regions(self) -> bool:
        """Whether it trains regions, or merges grafts."""
        return self.trains == "region" or self.family == "merging"

    @property
    def unavailable(self) -> str:
        """Why it cannot run here; empty if it can."""
        if self.broken:
            return self.broken
        if self.needs and find_spec(self.needs) is None:
            return f"it needs the package {self.needs}: pip install {self.needs}"
        return ""


def listed_only(name: str, family: Family, source: str, *, broken: str) -> StrategyRow:
    """Make the row of a strategy that cannot run, to say why."""

    def build(inputs: StrategyInputs) -> SupervisedTemplate:
        raise ValueError(f"{name} cannot run: {broken}")

    return StrategyRow(name, family, source, "everything", "head", build, adds="–", broken=broken)
