"""Train mode without dropout: for what only acts in train mode, such as gradient checkpointing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from cl_graft.training import freeze_statistics

__all__ = ["without_dropout"]


@contextmanager
def without_dropout(model: nn.Module) -> Iterator[nn.Module]:
    """Put a model into train mode with every dropout probability 0, for a `with` block.

    So it computes what it computes in eval mode. Set to 0 are the probability of torch's dropout
    layers and every float attribute of a module whose name holds "drop", which is where
    transformers' attention, torch's recurrent layers and layer drop keep theirs; code that reads
    its probability elsewhere (a config) keeps its dropout. Layers with running statistics stay in
    eval mode. Modes and probabilities are put back afterwards.
    """
    modes = [(module, module.training) for module in model.modules()]
    chances = [
        (module, name, value)
        for module in model.modules()
        for name, value in vars(module).items()
        if type(value) is float and _is_chance(module, name)
    ]
    try:
        for module, name, _ in chances:
            setattr(module, name, 0.0)
        model.train()
        freeze_statistics(model)
        yield model
    finally:
        for module, name, value in chances:
            setattr(module, name, value)
        for module, mode in modes:
            module.training = mode


def _is_chance(module: nn.Module, name: str) -> bool:
    return "drop" in name or (name == "p" and isinstance(module, nn.modules.dropout._DropoutNd))
