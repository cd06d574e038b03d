"""Activation memory: what a forward pass keeps for the backward pass."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

__all__ = ["activation_bytes"]


def activation_bytes(model: nn.Module, loss: Callable[[], Tensor]) -> int:
    """Measure what one forward pass keeps for the backward pass, in bytes.

    Every storage counts once and whole, also where a view of it is kept; those of the model's
    parameters and buffers do not count. With gradient checkpointing, what a block computes again
    while its gradient is taken comes on top for one block at a time.

    Args:
        model: The model, in the mode in which it trains.
        loss: Function that runs the forward pass, and returns the loss to differentiate.

    Examples:
        >>> layer = nn.Linear(4, 2)
        >>> rows = torch.zeros(3, 4)
        >>> activation_bytes(layer, lambda: layer(rows).square().sum())
        72
    """
    own = {t.untyped_storage().data_ptr() for t in (*model.parameters(), *model.buffers())}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        if tensor.layout is torch.strided:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in own:
                kept[storage.data_ptr()] = storage.nbytes()
        # Not the tensor itself: a graph that holds its own outputs is never freed.
        return tensor.detach()

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        # The graph lives until the end of the block, so no address is used twice.
        graph = loss()
    del graph
    return sum(kept.values())
