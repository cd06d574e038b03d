"""Names of a model's tensors and modules, without what `torch.compile` puts into them.

A compiled module wraps another as ``_orig_mod``. Banks leave it out, so one of a compiled model
opens on the plain model, and the other way round.
"""

from __future__ import annotations

from torch import Tensor, nn

_WRAPPED = "_orig_mod"


def plain_name(name: str) -> str:
    """Return the name of a tensor or module in the model that is not compiled."""
    if _WRAPPED not in name:
        return name
    return ".".join(part for part in name.split(".") if part != _WRAPPED)


def parameters_by_name(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters of a model by their plain names, one that is shared once."""
    return {plain_name(name): parameter for name, parameter in model.named_parameters()}


def tensors_by_name(model: nn.Module) -> dict[str, Tensor]:
    """Return the parameters and buffers of a model by their plain names."""
    buffers = {plain_name(name): buffer for name, buffer in model.named_buffers()}
    return {**parameters_by_name(model), **buffers}


def modules_by_path(model: nn.Module) -> dict[str, nn.Module]:
    """Return the modules of a model by their plain paths; of a compiled one the one inside."""
    return {plain_name(path): module for path, module in model.named_modules()}


def unwrap_compiled(model: nn.Module) -> nn.Module:
    """Return the module inside a compiled one, or the module itself."""
    return model._modules.get(_WRAPPED) or model
