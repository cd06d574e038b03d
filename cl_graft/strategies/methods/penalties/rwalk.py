"""RWalk: a penalty by Fisher information and by how much each weight lowered the loss."""

from __future__ import annotations

from typing import Any

from avalanche.training.plugins import RWalkPlugin
from avalanche.training.templates import SupervisedTemplate

from cl_graft.strategies import StrategyInputs, count_stored, register_strategy, setting
from cl_graft.strategies.methods.penalties.ewc import PENALTY_WEIGHT, keep_trained

__all__ = ["RWalk", "RWalkOnHeads"]


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

    def after_training_exp(self, strategy: Any, *args: Any, **kwargs: Any) -> None:
        """Keep scores and a copy of the parameters that train; the plugin keeps them of all."""
        super().after_training_exp(strategy, *args, **kwargs)
        self.exp_params = keep_trained(strategy.model, self.exp_params or {})
        self.exp_scores = keep_trained(strategy.model, self.exp_scores or {})


@register_strategy(
    "rwalk",
    family="penalty",
    source="Chaudhry et al., 2018, https://arxiv.org/abs/1801.10112; Avalanche's RWalk",
    adds="the first task four copies of the trained weights, others nothing",
)
class RWalk:
    """Hold weights near their latest values, by Fisher information and the path of training."""

    ewc_lambda: float = setting(0.1, PENALTY_WEIGHT, least=0, grid=(0.01, 0.1, 1.0, 10.0))
    ewc_alpha: float = setting(0.9, "Weight of new importances.", least=0, most=1)
    delta_t: int = setting(10, "Steps between updates of the scores, at most a task's.", least=1)

    storage_bytes = count_stored(
        RWalkPlugin, "exp_params", "exp_penalties", "exp_scores", "iter_importance"
    )

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return Naive with `RWalkOnHeads`."""
        # A task without one update of the scores would divide them by their largest, 0.
        often = min(self.delta_t, *(schedule.steps for schedule in inputs.dense_runs.values()))
        return inputs.naive(
            RWalkOnHeads(ewc_lambda=self.ewc_lambda, ewc_alpha=self.ewc_alpha, delta_t=often)
        )
