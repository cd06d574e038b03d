"""OwnValues: a few parameters have values of their own for every task, and all others stay frozen.

The frame of BitFit, LoRA, adapters and prompts a task: nothing that an earlier task is answered
with ever moves, so backward transfer is exactly 0, and a task does not depend on those before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from avalanche.core import SupervisedPlugin
from avalanche.training.supervised import Naive
from avalanche.training.templates import SupervisedTemplate
from torch import Tensor, nn

from cl_graft.grafts.graft import load_, snapshot
from cl_graft.runtime.checkpoints import joined, part_of
from cl_graft.strategies.baselines.stored_bytes import bytes_of, plugin_of
from cl_graft.strategies.heads import carrier_of, heads_of
from cl_graft.strategies.method_settings import Setting
from cl_graft.strategies.registered import Memory
from cl_graft.strategies.strategy_inputs import StrategyInputs

__all__ = [
    "OPTIMIZER",
    "OWN_VALUES",
    "RATES",
    "OwnValues",
    "TrainOnly",
    "frozen_but",
    "held_values",
    "learning_rate",
    "with_own_optimizer",
]

Choose = Callable[[nn.Module], Mapping[str, nn.Parameter]]
"""Takes a `TaskModel`; returns parameters of it by their full names."""


class TrainOnly(SupervisedPlugin, supports_distributed=False):
    """Train some parameters and the head of the task at hand; freeze all others.

    Runs at: before_training_exp. The optimiser starts with an empty state in every experience.

    Args:
        choose: The parameters.
    """

    def __init__(self, choose: Choose) -> None:
        super().__init__()
        self.choose = choose

    def before_training_exp(self, strategy: Any, **kwargs: Any) -> None:
        """Freeze."""
        strategy.optimizer.state.clear()
        carrier = carrier_of(strategy.model)
        frozen_but(carrier, self.choose(carrier), label=int(strategy.experience.task_label))


class OwnValues(TrainOnly, supports_distributed=False):
    """Give every task values of its own in some parameters.

    Every task starts from the values that the parameters have when the first one comes.

    Runs at: before_training_exp, after_training_exp, before_eval_exp, after_eval_exp.

    Attributes:
        values: The values by task label and name; a task's are never changed.
    """

    def __init__(self, choose: Choose) -> None:
        super().__init__(choose)
        self.values: dict[int, dict[str, Tensor]] = {}
        self._start: dict[str, Tensor] | None = None
        self._live: dict[str, Tensor] | None = None

    def before_training_exp(self, strategy: Any, **kwargs: Any) -> None:
        """Start the task's values."""
        self._home(strategy)
        super().before_training_exp(strategy, **kwargs)
        own = self._own(strategy)
        if self._start is None:
            self._start = snapshot(own)
        load_(carrier_of(strategy.model), self._start)

    def after_training_exp(self, strategy: Any, **kwargs: Any) -> None:
        """Keep the task's values, and put the starting ones back."""
        label = int(strategy.experience.task_label)
        self.values[label] = {n: t.cpu() for n, t in snapshot(self._own(strategy)).items()}
        load_(carrier_of(strategy.model), self._start or {})

    def before_eval_exp(self, strategy: Any, **kwargs: Any) -> None:
        """Carry the task's values; a task that was not learned is answered as it stands."""
        self._home(strategy)
        own = self.values.get(int(strategy.experience.task_label))
        if own is not None:
            self._live = snapshot(self._own(strategy))
            load_(carrier_of(strategy.model), own)

    def after_eval_exp(self, strategy: Any, **kwargs: Any) -> None:
        """Put the live values back."""
        self._home(strategy)

    def _own(self, strategy: Any) -> dict[str, nn.Parameter]:
        return dict(self.choose(carrier_of(strategy.model)))

    def _home(self, strategy: Any) -> None:
        """Put the live values back, also after an evaluation that an exception interrupted."""
        if self._live is not None:
            load_(carrier_of(strategy.model), self._live)
            self._live = None


def frozen_but(
    carrier: nn.Module, trained: Mapping[str, nn.Parameter], *, label: int | None
) -> None:
    """Let some parameters and one task's head require gradients, and nothing else."""
    carrier.requires_grad_(False)
    for parameter in trained.values():
        parameter.requires_grad_(True)
    for head in heads_of(carrier, label) if label is not None else ():
        head.module.requires_grad_(True)


def held_values(strategy: SupervisedTemplate) -> int:
    """Return the bytes of all tasks' values."""
    return bytes_of(plugin_of(strategy, OwnValues).values)


def _remember(strategy: SupervisedTemplate) -> dict[str, Tensor]:
    values = plugin_of(strategy, OwnValues).values
    carrier = carrier_of(strategy.model)
    heads = {name: p.detach() for name, p in carrier.named_parameters() if "heads." in name}
    return joined(heads=heads, **{str(label): own for label, own in values.items()})


def _recall(
    strategy: SupervisedTemplate, learned: Sequence[Any], tensors: Mapping[str, Tensor]
) -> None:
    plugin = plugin_of(strategy, OwnValues)
    carrier = carrier_of(strategy.model)
    plugin._start = snapshot(dict(plugin.choose(carrier)))
    load_(carrier, part_of(tensors, "heads"))
    for experience in learned:
        label = int(experience.task_label)
        plugin.values[label] = part_of(tensors, str(label))


OWN_VALUES = Memory(_recall, remember=_remember)
"""Of strategies whose tasks are the values that `OwnValues` keeps, and their heads."""

OPTIMIZER = Setting(
    "optimizer", "adamw", "What trains a task's own values.", choices=("adamw", "sgd")
)


RATES = {"lr": (1e-4, 5e-4, 2e-3, 8e-3)}
"""The learning rates to choose among of what is small and starts at zero, such as a LoRA."""


def learning_rate(default: float) -> Setting:
    """Return the setting of the learning rate, in place of the config's."""
    return Setting("lr", default, "Learning rate, in place of the config's.", least=1e-12)


def with_own_optimizer(inputs: StrategyInputs, *own: SupervisedPlugin) -> Naive:
    """Make Avalanche's Naive with an optimiser that is a setting, and without weight decay."""
    host = inputs.template_arguments(optimizer=inputs.settings["optimizer"])
    return Naive(**host, plugins=inputs.training_plugins(*own))
