"""The way from rows to a loss that a strategy has, for the dense run and localization.

A strategy of Avalanche may collate, unpack, answer and score its batches in a way of its own, as
those for transformers do: batches are dictionaries, and `mb_x`, `mb_y` and `forward` are written
for them. Then the batches go through the strategy's own methods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import default_collate

from cl_graft.strategies.heads import has_task_heads
from cl_graft.strategies.strategy import Strategy

_READING = ("mb_x", "mb_y", "mb_task_id", "_unpack_minibatch", "forward", "criterion")
_KNOWN_PACKAGES = ("avalanche.", "cl_graft.")


class StrategyBatch:
    """A batch that only its strategy can read, which also moves it to the device."""

    def __init__(self, held: Any) -> None:
        self.held = held

    def to(self, device: torch.device) -> StrategyBatch:
        """Return the batch as it is."""
        del device
        return self


class StrategyBatches:
    """The batches of a strategy, read as the strategy reads them."""

    def __init__(self, strategy: Strategy) -> None:
        self._strategy = strategy
        self._last: Any = None
        self.overridden = {
            name: getattr(vars(kind)[name], "fget", vars(kind)[name])
            for name in _READING
            for kind in [next(kind for kind in type(strategy).__mro__ if name in vars(kind))]
            if not kind.__module__.startswith(_KNOWN_PACKAGES)
        }

    def read(self, items: Sequence[Any]) -> tuple[Any, Tensor]:
        """Return the inputs and the targets of some rows, the targets on the CPU."""
        batch = self._collate(items)
        if not self.overridden:
            return batch[0], batch[1]
        with self._holding(batch):
            return StrategyBatch(batch), self._strategy.mb_y.cpu()

    def forward(self, label: int) -> Callable[[Any], Tensor]:
        """Return the function of inputs that returns the outputs of a task."""
        if not self.overridden:
            return make_forward(self._strategy.model, label)
        return self._answer

    @property
    def criterion(self) -> Callable[[Tensor, Tensor], Tensor]:
        """The function of (outputs, targets) that returns the mean loss.

        Where the strategy computes its loss in a way of its own, that of the batch that `forward`
        answered last.
        """
        own = self._loss if "criterion" in self.overridden else self._strategy._criterion
        return own

    def _answer(self, inputs: StrategyBatch) -> Tensor:
        self._last = inputs.held
        with self._holding(inputs.held):
            return self._strategy.forward()

    def _loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        del targets
        with self._holding(self._last):
            self._strategy.mb_output = outputs
            return self._strategy.criterion()

    def _collate(self, items: Sequence[Any]) -> Any:
        loader = self._strategy.dataloader
        settings = getattr(loader, "loader_kwargs", {})
        collate = settings.get("collate_fn") or getattr(loader, "collate_fn", None)
        return (collate or default_collate)(list(items))

    @contextmanager
    def _holding(self, batch: Any) -> Iterator[None]:
        """Give the strategy another batch for a `with` block."""
        strategy = self._strategy
        before = strategy.mbatch, strategy.mb_output
        try:
            strategy.mbatch = batch
            strategy._unpack_minibatch()
            yield
        finally:
            strategy.mbatch, strategy.mb_output = before


def make_forward(model: nn.Module, label: int) -> Callable[[Any], Tensor]:
    """Return the function of inputs that returns a model's outputs for a task."""
    if has_task_heads(model):
        return lambda inputs: model(inputs, label)
    return model
