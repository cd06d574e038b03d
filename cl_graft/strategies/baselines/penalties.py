"""Penalties: weights that mattered to earlier tasks are held near where they were.

These are Avalanche's plugins, RWalk's with an adapter. Their penalties go over every parameter,
those of finished heads too, so finished heads get a gradient of 0 and are subject to weight decay.
"""

from __future__ import annotations

from typing import Any

from avalanche.training.plugins import (
    EWCPlugin,
    MASPlugin,
    RWalkPlugin,
    SynapticIntelligencePlugin,
)
from avalanche.training.templates import SupervisedTemplate

from cl_graft.strategies.baselines.stored_bytes import bytes_of, plugin_of
from cl_graft.strategies.method_settings import Setting
from cl_graft.strategies.registered import StrategyRow
from cl_graft.strategies.strategy_inputs import StrategyInputs

__all__ = ["ROWS", "RWalkOnHeads"]


class RWalkOnHeads(RWalkPlugin):
    """Avalanche's `RWalkPlugin`, for heads that are made when their task comes.

    The plugin looks at parameters before the experience has made its own, and leaves the model in
    eval mode, so that dropout would never act.
    """

    def before_training_exp(self, strategy: Any, **kwargs: Any) -> None:
        """Look at the parameters again, the experience's head among them."""
        self.before_training(strategy)

    def before_training_iteration(self, strategy: Any, *args: Any, **kwargs: Any) -> None:
        """Differentiate the batch in eval mode, and train in train mode."""
        super().before_training_iteration(strategy, *args, **kwargs)
        strategy.model.train()


def _ewc(inputs: StrategyInputs) -> SupervisedTemplate:
    return inputs.naive(EWCPlugin(inputs.settings["ewc_lambda"]))


def _ewc_online(inputs: StrategyInputs) -> SupervisedTemplate:
    own = inputs.settings
    return inputs.naive(
        EWCPlugin(own["ewc_lambda"], mode="online", decay_factor=own["decay_factor"])
    )


def _si(inputs: StrategyInputs) -> SupervisedTemplate:
    own = inputs.settings
    return inputs.naive(SynapticIntelligencePlugin(own["si_lambda"], eps=own["eps"]))


def _mas(inputs: StrategyInputs) -> SupervisedTemplate:
    own = inputs.settings
    return inputs.naive(MASPlugin(lambda_reg=own["lambda_reg"], alpha=own["alpha"]))


def _rwalk(inputs: StrategyInputs) -> SupervisedTemplate:
    own = inputs.settings
    # A task without one update of the scores would divide them by their largest, 0.
    often = min(own["delta_t"], *(schedule.steps for schedule in inputs.dense_runs.values()))
    return inputs.naive(
        RWalkOnHeads(ewc_lambda=own["ewc_lambda"], ewc_alpha=own["ewc_alpha"], delta_t=often)
    )


def _held_by_ewc(strategy: SupervisedTemplate) -> int:
    plugin = plugin_of(strategy, EWCPlugin)
    return bytes_of([plugin.saved_params, plugin.importances])


def _held_by_si(strategy: SupervisedTemplate) -> int:
    plugin = plugin_of(strategy, SynapticIntelligencePlugin)
    # The other tensors of `syn_data` are made anew within a task.
    return bytes_of([plugin.ewc_data, plugin.syn_data["cum_trajectory"]])


def _held_by_mas(strategy: SupervisedTemplate) -> int:
    plugin = plugin_of(strategy, MASPlugin)
    return bytes_of([plugin.params, plugin.importance])


def _held_by_rwalk(strategy: SupervisedTemplate) -> int:
    plugin = plugin_of(strategy, RWalkPlugin)
    held = [plugin.exp_params, plugin.exp_penalties, plugin.exp_scores, plugin.iter_importance]
    return bytes_of(held)


_WEIGHT = "Weight of the penalty; 0 is Naive."

ROWS = (
    StrategyRow(
        "ewc",
        "penalty",
        "Kirkpatrick et al., 2017, https://arxiv.org/abs/1612.00796; Avalanche's EWC, separate",
        "everything",
        "head",
        _ewc,
        settings=(Setting("ewc_lambda", 100.0, _WEIGHT, least=0),),
        grid={"ewc_lambda": (1.0, 10.0, 100.0, 1000.0, 10000.0)},
        holds=_held_by_ewc,
        adds="two copies of all weights",
    ),
    StrategyRow(
        "ewc_online",
        "penalty",
        "Schwarz et al., 2018, https://arxiv.org/abs/1805.06370; Avalanche's EWC, online",
        "everything",
        "head",
        _ewc_online,
        settings=(
            Setting("ewc_lambda", 100.0, _WEIGHT, least=0),
            Setting("decay_factor", 0.9, "What is kept of older importances.", least=0, most=1),
        ),
        grid={"ewc_lambda": (1.0, 10.0, 100.0, 1000.0, 10000.0)},
        holds=_held_by_ewc,
        adds="the first task two copies of all weights, others nothing",
    ),
    StrategyRow(
        "si",
        "penalty",
        "Zenke et al., 2017, https://arxiv.org/abs/1703.04200; Avalanche's SynapticIntelligence",
        "everything",
        "head",
        _si,
        settings=(
            Setting("si_lambda", 100.0, _WEIGHT, least=0),
            Setting("eps", 1e-7, "Damping of importances.", least=1e-30),
        ),
        grid={"si_lambda": (1.0, 10.0, 100.0, 1000.0)},
        holds=_held_by_si,
        adds="the first task three copies of the trained weights, others nothing",
    ),
    StrategyRow(
        "mas",
        "penalty",
        "Aljundi et al., 2018, https://arxiv.org/abs/1711.09601; Avalanche's MAS",
        "everything",
        "head",
        _mas,
        settings=(
            Setting("lambda_reg", 1.0, _WEIGHT, least=0),
            Setting("alpha", 0.5, "What is kept of older importances.", least=0, most=1),
        ),
        grid={"lambda_reg": (0.01, 0.1, 1.0, 10.0)},
        holds=_held_by_mas,
        adds="the first task two copies of all weights, others nothing",
    ),
    StrategyRow(
        "rwalk",
        "penalty",
        "Chaudhry et al., 2018, https://arxiv.org/abs/1801.10112; Avalanche's RWalk",
        "everything",
        "head",
        _rwalk,
        settings=(
            Setting("ewc_lambda", 0.1, _WEIGHT, least=0),
            Setting("ewc_alpha", 0.9, "Weight of new importances.", least=0, most=1),
            Setting(
                "delta_t", 10, "Steps between updates of the scores, at most a task's.", least=1
            ),
        ),
        grid={"ewc_lambda": (0.01, 0.1, 1.0, 10.0)},
        holds=_held_by_rwalk,
        adds="the first task four copies of the trained weights, others nothing",
    ),
)
