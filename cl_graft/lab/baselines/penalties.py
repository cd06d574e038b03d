"""Penalties hold weights near earlier values, distillation outputs (Avalanche's plugins).

The penalties go over every parameter, those of finished heads too, so finished heads get a gradient
of 0 and are subject to weight decay.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from avalanche.training.plugins import EWCPlugin, LwFPlugin, MASPlugin, SynapticIntelligencePlugin
from avalanche.training.templates import SupervisedTemplate
from torch import nn

from cl_graft.strategies import (
    StrategyInputs,
    count_bytes,
    count_stored,
    find_plugin,
    register_strategy,
    setting,
)
from cl_graft.strategies.strategy import Strategy

PENALTY_WEIGHT = "Weight of the penalty; 0 is Naive."

_Held = TypeVar("_Held")


def keep_trained(model: nn.Module, held: Mapping[str, _Held]) -> dict[str, _Held]:
    """Return what is held of the parameters that train; the penalty on frozen ones is always 0."""
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    return {name: value for name, value in held.items() if name in trained}


class EWCOnTrained(EWCPlugin):
    """Avalanche's `EWCPlugin`, which would also keep what it knows of frozen parameters."""

    def compute_importances(self, model: nn.Module, *args: Any, **kwargs: Any) -> Any:
        """Return the Fisher information of the parameters that train."""
        return keep_trained(model, super().compute_importances(model, *args, **kwargs))

    def after_training_exp(self, strategy: Strategy, **kwargs: Any) -> None:
        """Keep the Fisher information and a copy of the parameters that train."""
        super().after_training_exp(strategy, **kwargs)
        latest = strategy.clock.train_exp_counter
        self.saved_params[latest] = keep_trained(strategy.model, self.saved_params[latest])


@register_strategy(
    "ewc",
    family="penalty",
    source="Kirkpatrick et al., 2017, https://arxiv.org/abs/1612.00796; Avalanche's EWC, separate",
    adds="two copies of the trained weights",
)
class EWC:
    """Hold weights near their values after each earlier task, by their Fisher information."""

    ewc_lambda: float = setting(
        100.0, PENALTY_WEIGHT, min_value=0, grid=(1.0, 10.0, 100.0, 1000.0, 10000.0)
    )

    storage_bytes = count_stored(EWCPlugin, "saved_params", "importances")

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return Naive with `EWCOnTrained`."""
        return inputs.naive(EWCOnTrained(self.ewc_lambda))


@register_strategy(
    "ewc_online",
    family="penalty",
    source="Schwarz et al., 2018, https://arxiv.org/abs/1805.06370; Avalanche's EWC, online",
    adds="the first task two copies of the trained weights, others nothing",
)
class OnlineEWC(EWC):
    """Hold weights near their latest values, by an average of all Fisher informations."""

    decay_factor: float = setting(0.9, "Weight of older importances.", min_value=0, max_value=1)

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return Naive with `EWCOnTrained`, online."""
        plugin = EWCOnTrained(self.ewc_lambda, mode="online", decay_factor=self.decay_factor)
        return inputs.naive(plugin)


@register_strategy(
    "si",
    family="penalty",
    source="Zenke et al., 2017, https://arxiv.org/abs/1703.04200; Avalanche's SynapticIntelligence",
    adds="the first task three copies of the trained weights, others nothing",
)
class SynapticIntelligence:
    """Hold weights near their latest values, by their share in the fall of the loss."""

    si_lambda: float = setting(100.0, PENALTY_WEIGHT, min_value=0, grid=(1.0, 10.0, 100.0, 1000.0))
    eps: float = setting(1e-7, "Damping of importances.", min_value=1e-30)

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return Naive with Avalanche's `SynapticIntelligencePlugin`."""
        return inputs.naive(SynapticIntelligencePlugin(self.si_lambda, eps=self.eps))

    @staticmethod
    def storage_bytes(strategy: SupervisedTemplate) -> int:
        """Return the bytes of weights, importances and trajectories."""
        plugin = find_plugin(strategy, SynapticIntelligencePlugin)
        # The other tensors of `syn_data` are made anew within a task.
        return count_bytes([plugin.ewc_data, plugin.syn_data["cum_trajectory"]])


class MASOnTrained(MASPlugin):
    """Avalanche's `MASPlugin`, which would also keep what it knows of frozen parameters."""

    def after_training_exp(self, strategy: Strategy, **kwargs: Any) -> None:
        """Keep importances and a copy of the parameters that train."""
        super().after_training_exp(strategy, **kwargs)
        self.params = keep_trained(strategy.model, self.params or {})
        self.importance = keep_trained(strategy.model, self.importance or {})


@register_strategy(
    "mas",
    family="penalty",
    source="Aljundi et al., 2018, https://arxiv.org/abs/1711.09601; Avalanche's MAS",
    adds="the first task two copies of the trained weights, others nothing",
)
class MemoryAwareSynapses:
    """Hold weights near their latest values, by the gradients of the squared outputs."""

    lambda_reg: float = setting(1.0, PENALTY_WEIGHT, min_value=0, grid=(0.01, 0.1, 1.0, 10.0))
    alpha: float = setting(0.5, "Weight of older importances.", min_value=0, max_value=1)

    storage_bytes = count_stored(MASPlugin, "params", "importance")

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return Naive with `MASOnTrained`."""
        return inputs.naive(MASOnTrained(lambda_reg=self.lambda_reg, alpha=self.alpha))


class DistilOneHead(LwFPlugin):
    """Avalanche's `LwFPlugin` for tasks that share a head, which is asked once for all classes."""

    def after_training_exp(self, strategy: Strategy, **kwargs: Any) -> None:
        """Keep a copy of the model, and count all classes seen as those of the first task."""
        super().after_training_exp(strategy, **kwargs)
        seen = self.lwf.prev_classes_by_task
        classes = set().union(*seen.values())
        first = min(seen)
        seen.clear()
        seen[first] = classes


@register_strategy(
    "lwf",
    family="distillation",
    source="Li and Hoiem, 2016, https://arxiv.org/abs/1606.09282; Avalanche's LwF",
    adds="the first task a copy of the model, others a copy of their head",
    kinds="classification",
)
class LwF:
    """Hold the answers of earlier heads on new rows near those of the model before the task."""

    alpha: float = setting(
        1.0, "Weight of the distillation loss; 0 is Naive.", min_value=0, grid=(0.1, 1.0, 10.0)
    )
    temperature: float = setting(
        2.0, "Temperature of the teacher's and the model's answers.", min_value=1e-6
    )

    storage_bytes = count_stored(LwFPlugin, "lwf.prev_model")

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return Naive with Avalanche's `LwFPlugin`, or its version for one head."""
        kind: Any = DistilOneHead if inputs.model.one_head else LwFPlugin
        plugin = kind(alpha=self.alpha, temperature=self.temperature)
        return inputs.naive(plugin, whole_batches=True)
