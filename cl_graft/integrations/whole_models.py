"""Models of transformers that have a head of their own, on the weights of an encoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from cl_graft.models.quiet import quiet

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["classifier_layers", "make_whole", "put_on_tokens"]


def make_whole(auto: Any, config: Any, backbone: nn.Module) -> PreTrainedModel | None:
    """Make a model with the weights of a backbone; those of its head are first values.

    Args:
        auto: A class of transformers, such as `AutoModelForTokenClassification`.
        config: Config of the model.
        backbone: The encoder.

    Returns:
        The model, in eval mode, on the CPU; None if there is no such class for the architecture.
    """
    try:
        with quiet():
            whole = auto.from_config(config, dtype=next(backbone.parameters()).dtype).eval()
    except ValueError:
        return None
    whole.base_model.load_state_dict(backbone.state_dict(), strict=False)
    return whole


def put_on_tokens(
    auto: Any, config: Any, backbone: nn.Module, layer: Mapping[str, Tensor]
) -> PreTrainedModel | None:
    """Make a model that puts one linear layer on the last states of all tokens.

    Args:
        auto: As in `make_whole`, as are `config` and `backbone`.
        config: Config of the model, with the number of outputs.
        backbone: The encoder.
        layer: Weight and bias.

    Returns:
        The model; None if transformers has none whose head is this layer alone.
    """
    whole = make_whole(auto, config, backbone)
    if whole is None:
        return None
    layers, weight = classifier_layers(whole, backbone), layer["weight"]
    if [(m.weight.shape, m.weight.dtype) for m in layers] != [(weight.shape, weight.dtype)]:
        return None
    layers[0].load_state_dict(layer)
    return whole


def classifier_layers(whole: nn.Module, backbone: nn.Module) -> list[nn.Linear]:
    """Return the linear layers that a classifier has beyond its backbone, in their order."""
    inner = {f"{whole.base_model_prefix}.{name}" for name, _ in backbone.named_modules()}
    return [
        module
        for name, module in whole.named_modules()
        if isinstance(module, nn.Linear) and name not in inner
    ]
