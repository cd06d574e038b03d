"""OwnValues: a few parameters have values of their own for every task, and all others stay frozen.

BitFit, LoRA, (IA)3, adapters and prompt tuning share it. No value that answers an earlier task ever
changes, so backward transfer is exactly 0, and a task does not depend on those before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from avalanche.core import SupervisedPlugin
from avalanche.training.supervised import Naive
from avalanche.training.templates import SupervisedTemplate
from torch import Tensor, nn

from cl_graft.errors import InputError
from cl_graft.grafts.graft import load_, snapshot
from cl_graft.models import graftable_parameters
from cl_graft.runtime.checkpoints import join_tensors, select_tensors
from cl_graft.strategies import (
    StrategyInputs,
    count_bytes,
    count_stored,
    find_plugin,
    register_strategy,
    setting,
)
from cl_graft.strategies.heads import find_heads, unwrap_model
from cl_graft.strategies.method import PICKED_BY_LABEL, StreamShape
from cl_graft.strategies.strategy import Strategy

Choose = Callable[[nn.Module], Mapping[str, nn.Parameter]]
"""Takes a `TaskModel`; returns parameters of it by their full names."""


class TrainOnly(SupervisedPlugin, supports_distributed=False):
    """Train some parameters and the head of the task at hand; freeze all others.

    Runs at: before_training_exp. The optimiser starts with an empty state in every experience.
    """

    def __init__(self, choose: Choose) -> None:
        super().__init__()
        self.choose = choose

    def before_training_exp(self, strategy: Strategy, **kwargs: Any) -> None:
        """Freeze all others."""
        strategy.optimizer.state.clear()
        model = unwrap_model(strategy.model)
        freeze_except_(model, self.choose(model), label=int(strategy.experience.task_label))


class OwnValues(TrainOnly, supports_distributed=False):
    """Give every task values of its own in some parameters.

    Every task starts from the values that the parameters have when the first one comes.

    Runs at: before_training_exp, after_training_exp, before_eval_exp, after_eval_exp.
    """

    def __init__(self, choose: Choose) -> None:
        super().__init__(choose)
        self.values: dict[int, dict[str, Tensor]] = {}
        self._start: dict[str, Tensor] | None = None
        self._live: dict[str, Tensor] | None = None

    def before_training_exp(self, strategy: Strategy, **kwargs: Any) -> None:
        """Start the task's values."""
        self._restore(strategy)
        super().before_training_exp(strategy, **kwargs)
        own = self._own(strategy)
        if self._start is None:
            self._start = snapshot(own)
        load_(unwrap_model(strategy.model), self._start)

    def after_training_exp(self, strategy: Strategy, **kwargs: Any) -> None:
        """Keep the task's values, and put the starting ones back."""
        label = int(strategy.experience.task_label)
        self.values[label] = {n: t.cpu() for n, t in snapshot(self._own(strategy)).items()}
        load_(unwrap_model(strategy.model), self._start or {})

    def before_eval_exp(self, strategy: Strategy, **kwargs: Any) -> None:
        """Load the task's values; an unlearned task is answered with the current ones."""
        self._restore(strategy)
        own = self.values.get(int(strategy.experience.task_label))
        if own is not None:
            self._live = snapshot(self._own(strategy))
            load_(unwrap_model(strategy.model), own)

    def after_eval_exp(self, strategy: Strategy, **kwargs: Any) -> None:
        """Put the live values back."""
        self._restore(strategy)

    def _own(self, strategy: Strategy) -> dict[str, nn.Parameter]:
        return dict(self.choose(unwrap_model(strategy.model)))

    def _restore(self, strategy: Strategy) -> None:
        """Put the live values back, also after an evaluation that an exception interrupted."""
        if self._live is not None:
            load_(unwrap_model(strategy.model), self._live)
            self._live = None


def freeze_except_(
    model: nn.Module, trained: Mapping[str, nn.Parameter], *, label: int | None
) -> None:
    """Let some parameters and one task's head require gradients, and nothing else."""
    model.requires_grad_(False)
    for parameter in trained.values():
        parameter.requires_grad_(True)
    for head in find_heads(model, label) if label is not None else ():
        head.module.requires_grad_(True)


def read_own_values(strategy: SupervisedTemplate) -> dict[str, Tensor]:
    """Return all tasks' values and heads."""
    values = find_plugin(strategy, OwnValues).values
    model = unwrap_model(strategy.model)
    heads = {name: p.detach() for name, p in model.named_parameters() if "heads." in name}
    return join_tensors(heads=heads, **{str(label): own for label, own in values.items()})


def load_own_values_(
    strategy: SupervisedTemplate, experiences: Sequence[Any], tensors: Mapping[str, Tensor]
) -> None:
    """Give a new strategy the values and heads of earlier tasks."""
    plugin = find_plugin(strategy, OwnValues)
    model = unwrap_model(strategy.model)
    plugin._start = snapshot(dict(plugin.choose(model)))
    load_(model, select_tensors(tensors, "heads"))
    for experience in experiences:
        label = int(experience.task_label)
        plugin.values[label] = select_tensors(tensors, str(label))


class OwnValuesMethod:
    """The part of methods that give every task values of its own in some parameters."""

    storage_bytes = count_stored(OwnValues, "values")
    state = staticmethod(read_own_values)
    load_state_ = staticmethod(load_own_values_)


def optimizer_setting() -> Any:
    """Return the setting of the optimiser."""
    return setting("adamw", "Optimiser of a task's own values.", choices=("adamw", "sgd"))


RATES = (1e-4, 5e-4, 2e-3, 8e-3)
"""Learning rates among which tuning chooses, for small modules that start at zero."""


def rate_setting(default: float, grid: tuple[float, ...] = RATES) -> Any:
    """Return the setting of the learning rate, in place of the config's."""
    return setting(default, "Learning rate, in place of the config's.", min_value=1e-12, grid=grid)


def train_own_values(
    inputs: StrategyInputs, plugin: SupervisedPlugin, *, optimizer: str
) -> SupervisedTemplate:
    """Return Naive with a plugin that picks what trains, and without weight decay."""
    template = inputs.template_arguments(optimizer=optimizer)
    return Naive(**template, plugins=inputs.loop_plugins(plugin, trains=True))


def find_biases(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the biases of a model's blocks, those of LayerNorms among them."""
    chosen = graftable_parameters(model)
    found = {name: p for name, p in chosen.items() if name.rpartition(".")[2] == "bias"}
    if not found:
        raise InputError("strategy 'bitfit' trains biases, and this model has none")
    return found


@register_strategy(
    "bitfit",
    family="isolation",
    source="Ben Zaken et al., 2022, https://arxiv.org/abs/2106.10199; biases of its own for each "
    "task",
    trains="per_task",
    adds="its head and all biases",
    unsupported=PICKED_BY_LABEL,
)
class BitFit(OwnValuesMethod):
    """Give every task its own values of the biases; they start at those of the base."""

    optimizer: str = optimizer_setting()
    lr: float = rate_setting(2e-3)

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return Naive with `OwnValues` of the biases."""
        return train_own_values(inputs, OwnValues(find_biases), optimizer=self.optimizer)

    def check_stream(self, shape: StreamShape) -> None:
        """Refuse a model without biases."""
        find_biases(shape.model)

    def task_bytes(self, shape: StreamShape) -> float:
        """Return the bytes of the biases."""
        return count_bytes(find_biases(shape.model))
