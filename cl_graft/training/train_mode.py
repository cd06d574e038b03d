"""Train mode without dropout, and without layers that keep statistics of what they see.

Gradient checkpointing acts in train mode alone, so switching to eval mode is no substitute.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.nn.utils.parametrizations import _SpectralNorm
from torch.nn.utils.spectral_norm import SpectralNorm

from cl_graft.grafts.model_state import preserve_modes


def freeze_statistics(model: nn.Module) -> None:
    """Put layers that keep statistics in train mode into eval mode, so that these do not change.

    Those are BatchNorm's running statistics and the power iteration of spectral norms.
    """
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
    """Put a model into train mode with every dropout probability 0, for a `with` block.

    So it computes what it computes in eval mode; see `dropout_off` for what is set to 0. Layers
    with running statistics stay in eval mode. Modes are put back afterwards.

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
    name contains "drop": there transformers' attention, torch's recurrent layers and layer drop
    keep theirs. Code that reads its probability elsewhere (a config) keeps its dropout. The
    probabilities are put back afterwards.

    Args:
        model: The model.

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
