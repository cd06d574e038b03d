"""A typing protocol of Avalanche's strategies: what the hooks of plugins read and write."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor
from torch.optim import Optimizer


class Strategy(Protocol):
    """A strategy while it trains or evaluates an experience."""

    model: Any
    optimizer: Optimizer
    experience: Any
    clock: Any
    plugins: list[Any]
    evaluator: Any
    device: Any
    dataloader: Any
    adapted_dataset: Any
    train_epochs: int
    train_mb_size: int
    eval_mb_size: int
    mbatch: Any
    mb_output: Any
    loss: Any
    _criterion: Any
    _stop_training: bool

    @property
    def mb_x(self) -> Any:
        """Inputs of the batch."""

    @property
    def mb_y(self) -> Any:
        """Targets of the batch."""

    def _unpack_minibatch(self) -> None:
        """Move the batch to the device."""

    def forward(self) -> Tensor:
        """Return the outputs of the batch."""
        ...

    def criterion(self) -> Tensor:
        """Return the loss of the batch."""
        ...

    def stop_training(self) -> None:
        """End the training of the experience before the next batch."""
