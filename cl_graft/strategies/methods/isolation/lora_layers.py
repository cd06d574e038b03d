"""LoRA layers by peft, for the methods that train low-rank updates.

A LoRA adds ``(alpha / rank) B A`` to the weight of a linear layer (Hu et al., 2022,
https://arxiv.org/abs/2106.09685). B starts at 0, so every task starts at the base.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn

from cl_graft.models import TaskModel, graftable_parameters
from cl_graft.runtime.seeding import seeded
from cl_graft.strategies.method import setting
from cl_graft.training.linear_layers import is_conv1d

__all__ = [
    "LORA_PAPER",
    "add_lora_",
    "alpha_setting",
    "find_linear_layers",
    "find_lora",
    "find_lora_layers",
    "rank_setting",
]

LORA_PAPER = "Hu et al., 2022, https://arxiv.org/abs/2106.09685; LoRA by peft"


def rank_setting(*, is_size: bool = True) -> Any:
    """Return the setting of the rank."""
    return setting(1, "Rank of the updates.", least=1, is_size=is_size)


def alpha_setting() -> Any:
    """Return the setting of the scale."""
    return setting(2, "Updates are scaled by alpha / rank.", least=0)


def add_lora_(
    model: TaskModel, *, rank: int, alpha: int, seed: int, everywhere: bool = True
) -> None:
    """Put LoRAs beside graftable linear layers of a model, and freeze the rest.

    Args:
        model: The model, in place; its parameters get other names.
        rank: Rows of A.
        alpha: The update is scaled by ``alpha / rank``.
        seed: Seed of A.
        everywhere: Whether they stand beside all of these layers, or where peft puts them in an
            architecture that it knows: for most beside query and value, as in the paper.
    """
    from peft import LoraConfig, inject_adapter_in_model
    from peft.utils import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING as USUAL

    known = None if everywhere else USUAL.get(model.text_config.model_type)
    ends = tuple(f".{end}" for end in known or [])
    layers = find_linear_layers(model)  # of the blocks that read text
    places = [name.removeprefix("backbone.") for name in layers if not ends or name.endswith(ends)]
    transposed = any(is_conv1d(module) for module in model.modules())
    config = LoraConfig(r=rank, lora_alpha=alpha, target_modules=places, fan_in_fan_out=transposed)  # pyright: ignore[reportCallIssue]
    with seeded(seed, "lora"):
        inject_adapter_in_model(config, model.backbone)
    model.requires_grad_(False)


def find_lora(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the A and B of a model by their full names."""
    return {name: p for name, p in model.named_parameters() if ".lora_" in name}


def find_linear_layers(model: nn.Module) -> dict[str, nn.Module]:
    """Return the graftable linear layers by their paths."""
    chosen = set(graftable_parameters(model))
    return {
        name: module
        for name, module in model.named_modules()
        if (isinstance(module, nn.Linear) or is_conv1d(module)) and f"{name}.weight" in chosen
    }


def find_lora_layers(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """Yield path and module of the linear layers with a LoRA."""
    from peft.tuners.lora import LoraLayer

    for name, module in model.named_modules():
        if isinstance(module, LoraLayer):
            yield name, module
