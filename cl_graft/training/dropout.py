"""Contexts without dropout, in train mode or in the mode that a model is in.

Gradient checkpointing acts in train mode alone, so switching to eval mode is no substitute.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from cl_graft.training.fine_tuning import freeze_statistics

__all__ = ["dropout_off", "without_dropout"]


@contextmanager
def without_dropout(model: nn.Module) -> Iterator[nn.Module]:
    """Put a model into train mode with every dropout probability 0, for a `with` block.

    So it computes what it computes in eval mode; see `dropout_off` for what is set to 0. Layers
    with running statistics stay in eval mode. Modes are put back afterwards.
    """
    modes = [(module, module.training) for module in model.modules()]
    with dropout_off(model):
        try:
            model.train()
            freeze_statistics(model)
            yield model
        finally:
            for module, mode in modes:
                module.training = mode


@contextmanager
def dropout_off(model: nn.Module) -> Iterator[nn.Module]:
    """Make every dropout probability of a model 0 for a `with` block, in whatever mode it is.

    Set to 0 are the probability of torch's dropout layers and every float attribute of a module
    whose name holds "drop", which is where transformers' attention, torch's recurrent layers and
    layer drop keep theirs; code that reads its probability elsewhere (a config) keeps its dropout.
    The probabilities are put back afterwards.
    """
    probabilities = [
        (module, name, value)
        for module in model.modules()
        for name, value in vars(module).items()
        if type(value) is float and _is_probability(module, name)
    ]
    try:
        for module, name, _ in probabilities:
            setattr(module, name, 0.0)
        yield model
    finally:
        for module, name, value in probabilities:
            setattr(module, name, value)


def _is_probability(module: nn.Module, name: str) -> bool:
    return "drop" in name or (name == "p" and isinstance(module, nn.modules.dropout._DropoutNd))
