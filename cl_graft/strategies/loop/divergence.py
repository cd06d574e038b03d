"""StopDiverged: a plugin that ends a strategy's loop where its loss is NaN or infinite."""

from __future__ import annotations

import math
from typing import Any

from avalanche.core import SupervisedPlugin

from cl_graft.errors import DivergedError

__all__ = ["StopDiverged", "check_loss"]


class StopDiverged(SupervisedPlugin, supports_distributed=True):
    """Stop training before a step whose loss is NaN or infinite.

    Runs at: before_update. The weights are those of the last good step then. Give it after
    `MicroBatches`. `GraftingPlugin` does this by itself.
    """

    def before_update(self, strategy: Any, **kwargs: Any) -> None:
        """Check the loss."""
        check_loss(strategy, phase="training")


def check_loss(strategy: Any, *, phase: str) -> None:
    """Refuse a loss that is NaN or infinite.

    Raises:
        DivergedError: It names the step and the learning rate.
    """
    loss = float(strategy.loss.detach())
    if math.isfinite(loss):
        return
    rates = {group["lr"] for group in strategy.optimizer.param_groups if group["params"]}
    raise DivergedError(
        f"the loss is {loss} at step {strategy.clock.train_exp_iterations + 1} of {phase} with "
        f"lr {', '.join(f'{rate:g}' for rate in sorted(rates))}; a lower lr usually helps"
    )
