"""ScaleLoss and MicroBatches: half precision and small memory in any strategy's loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from avalanche.core import SupervisedPlugin
from torch import Tensor

from cl_graft.runtime.batching import join_rows
from cl_graft.runtime.checkpoints import State
from cl_graft.strategies.strategy import Strategy
from cl_graft.training.precision import LossScale


class ScaleLoss(SupervisedPlugin, supports_distributed=False):
    """Scale the loss of fp16 training up for the backward pass, and gradients down after it.

    Runs at: before_training_exp, before_backward, after_backward. A step whose gradients overflow
    is skipped: the optimiser finds none. Give it after plugins that add to the loss (EWC, LwF) and
    before those that look at gradients (GEM); `strategy.loss` shows the true loss again afterwards.

    Args:
        scale: The scale; shared with `MicroBatches` where both are used.
    """

    def __init__(self, scale: LossScale) -> None:
        super().__init__()
        self.scale = scale
        self._loss: Tensor | None = None

    def before_training_exp(self, strategy: Strategy, **kwargs: Any) -> None:
        """Start with the first scale, so that a task does not depend on those before it."""
        self.scale.reset_()

    def before_backward(self, strategy: Strategy, **kwargs: Any) -> None:
        """Scale the loss."""
        self._loss = strategy.loss.detach()
        strategy.loss = strategy.loss * self.scale.value

    def after_backward(self, strategy: Strategy, **kwargs: Any) -> None:
        """Scale the gradients of what the optimiser holds."""
        strategy.loss, self._loss = self._loss, None
        held = [p for group in strategy.optimizer.param_groups for p in group["params"]]
        self.scale.unscale_(held)

    def loop_state(self) -> State:
        """Return the state of the scale."""
        return {}, self.scale.state()

    def load_loop_state_(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Restore the state of another scale."""
        self.scale.load_state_(values)


class MicroBatches(SupervisedPlugin, supports_distributed=True):
    """Compute training batches `rows` at a time; the gradients add up to those of the batch.

    All parts but the last are computed here, by the strategy's own forward and criterion; before
    the update the strategy has the whole batch, its outputs and its mean loss again. The gradient
    is that of the batch, up to float rounding, if the loss is the mean of a criterion over rows,
    also with penalties on weights. It is not for losses that look at the batch elsewhere (LwF), for
    losses across rows, or where layers take statistics of a batch. Give it before plugins that add
    to the loss. `scale` is that of `ScaleLoss`, where it is used.

    Runs at: before_forward, before_backward, before_update.
    """

    def __init__(self, rows: int, *, scale: LossScale | None = None) -> None:
        super().__init__()
        if rows < 1:
            raise ValueError(f"rows must be at least 1, got {rows}")
        self.rows = rows
        self._scale = scale
        self._whole: list[Tensor] | None = None
        self._outputs: list[Tensor] = []
        self._loss = torch.zeros(())
        self._share = 1.0

    def before_forward(self, strategy: Strategy, **kwargs: Any) -> None:
        """Compute all parts but the last, and leave that to the strategy."""
        self._whole = None
        whole = list(strategy.mbatch)
        count = len(whole[0])
        if count <= self.rows:
            return
        self._whole, self._outputs, self._loss = whole, [], torch.zeros(())
        *parts, last = zip(*(tensor.split(self.rows) for tensor in whole), strict=True)
        for part in parts:
            strategy.mbatch = list(part)
            strategy.mb_output = strategy.forward()
            loss = strategy.criterion() * (len(part[0]) / count)
            (loss * self._scale.value if self._scale else loss).backward()
            self._keep(strategy, loss)
        strategy.mbatch = list(last)
        self._share = len(last[0]) / count

    def before_backward(self, strategy: Strategy, **kwargs: Any) -> None:
        """Weigh the last part."""
        if self._whole is not None:
            strategy.loss = strategy.loss * self._share
            self._keep(strategy, strategy.loss)

    def before_update(self, strategy: Strategy, **kwargs: Any) -> None:
        """Give the strategy its whole batch back."""
        if self._whole is not None:
            strategy.mbatch, self._whole = self._whole, None
            strategy.mb_output = join_rows(self._outputs, fill=0)
            strategy.loss, self._outputs = self._loss, []

    def _keep(self, strategy: Strategy, loss: Tensor) -> None:
        self._outputs.append(strategy.mb_output.detach())
        self._loss = self._loss.to(loss.device) + loss.detach()
