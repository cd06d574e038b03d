"""Train mode without dropout and statistics; gradient checkpointing acts in train mode alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.nn.utils.parametrizations import _SpectralNorm
from torch.nn.utils.spectral_norm import SpectralNorm

from cl_graft.grafts.model_state import preserve_modes


def freeze_statistics(model: nn.Module) -> None:
    """Put layers that keep statistics (BatchNorm, spectral norms) into eval mode."""
    for module in model.modules():
        if _keeps_statistics(module):
            module.eval()


def _keeps_statistics(module: nn.Module) -> bool:
    if isinstance(module, nn.modules.batchnorm._NormBase):
        return module.track_running_stats
    hooks = module._forward_pre_hooks.values()  # of torch's older spectral norm
    return isinstance(module, _SpectralNorm) or any(isinstance(h, SpectralNorm) for h in hooks)


@contextmanager
def without_dropout(model: nn.Module) -> Iterator[nn.Module]:
    """Put a model into train mode with dropout and statistics off, for a `with` block.

    Examples:
        >>> model = nn.Sequential(nn.Dropout(0.5)).eval()
        >>> with without_dropout(model):
        ...     model.training, model[0].p
        (True, 0.0)
    """
    with dropout_off(model), preserve_modes(model):
        model.train()
        freeze_statistics(model)
        yield model


@contextmanager
def dropout_off(model: nn.Module) -> Iterator[nn.Module]:
    """Make every dropout probability of a model 0 for a `with` block, in whatever mode it is.

    It sets the probability of torch's dropout layers, and every float attribute of a module whose
    name contains "drop". Code that reads its probability elsewhere (a config) keeps its dropout.

    Examples:
        >>> import torch
        >>> model = nn.Sequential(nn.Dropout(0.5))
        >>> with dropout_off(model):
        ...     model(torch.ones(3))
        tensor([1., 1., 1.])
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
