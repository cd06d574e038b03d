"""The parameters of a model that may be grafted: those of its stack of blocks.

A graft lives in the transformer blocks (weights, biases, LayerNorms), never in embeddings, pooler
or heads, nor in the table of positions that some models have in a block (T5). The stack is found by
its form; a model without one (an MLP, a plain CNN) is graftable everywhere but in its heads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

from cl_graft.runtime.forward_override import original_class
from cl_graft.runtime.tensor_names import parameters_by_name, plain_name


def graftable_parameters(
    module: nn.Module,
    *,
    exclude: Sequence[str] = ("heads",),
    keep: Callable[[str], bool] | None = None,
) -> dict[str, nn.Parameter]:
    """Return the graftable parameters of a model by their full names, in the model's order.

    Where a model reads images or sound as well, the parts that do so are left out, as no text
    reaches them. A parameter that is shared is listed once, under the first of its names; it is
    graftable if that name is. RoBERTa-base has 192 of them with 85,054,464 coordinates.

    Args:
        module: The model.
        exclude: Module paths (such as `"heads"` or `"model.classifier"`), at any depth, whose
            parameters are left out.
        keep: Function of a parameter's full name; False leaves the parameter out, too. None keeps
            all.

    Raises:
        ValueError: If nothing is left.

    Examples:
        >>> blocks = [nn.TransformerEncoderLayer(8, 2, 16) for _ in range(2)]
        >>> model = nn.ModuleDict({"words": nn.Embedding(9, 8), "blocks": nn.ModuleList(blocks)})
        >>> sorted({name.split(".")[0] for name in graftable_parameters(model)})
        ['blocks']
        >>> biases = graftable_parameters(model, keep=lambda name: name.endswith("bias"))
        >>> len(biases), len(graftable_parameters(model))
        (12, 24)
    """
    embeddings = tuple(
        f"{plain_name(path)}." for path, m in module.named_modules() if isinstance(m, nn.Embedding)
    )
    stacks = tuple(f"{path}." if path else "" for path in block_stacks(module))
    chosen = {
        name: parameter
        for name, parameter in parameters_by_name(module).items()
        if parameter.is_floating_point()
        and (not stacks or name.startswith(stacks))
        and not name.startswith(embeddings)
        and not any(f".{path}." in f".{name}." for path in exclude)
        and (keep is None or keep(name))
    }
    if not chosen:
        raise ValueError(
            f"{type(module).__name__} has no graftable parameters: block stacks found: "
            f"{', '.join(stacks) or 'none'}; excluded: {', '.join(exclude) or 'nothing'}"
        )
    return chosen


def weight_scale(module: nn.Module) -> float:
    """Return the root mean square of a model's graftable matrices, in three digits.

    More would depend on the order of the sum. Without any matrix all graftable weights count.

    Examples:
        >>> linear = nn.Linear(2, 1)
        >>> linear.weight = nn.Parameter(torch.tensor([[3.0, 4.0]]))
        >>> weight_scale(linear)
        3.54
    """
    parameters = [p.detach() for p in graftable_parameters(module).values()]
    weights = [p for p in parameters if p.ndim > 1] or parameters
    norms = [float(torch.linalg.vector_norm(w.float())) for w in weights]
    return float(f"{math.hypot(*norms) / math.sqrt(sum(w.numel() for w in weights)):.3g}")


def find_text_config(backbone: nn.Module) -> Any:
    """Return the part of a backbone's config that is about text (Gemma 3 has others)."""
    config: Any = backbone.config
    find = getattr(config, "get_text_config", None)
    return config if find is None else find()


def _find_towers(module: nn.Module) -> tuple[str, ...]:
    """Return the paths of the parts that read images or sound, by the configs that they have."""
    configured = {
        plain_name(path): inner.config
        for path, inner in module.named_modules()
        if hasattr(getattr(inner, "config", None), "get_text_config")
    }
    whole: Any = next(iter(configured.values()), None)
    if whole is None or getattr(whole, "is_encoder_decoder", False):
        return ()
    text = whole.get_text_config()
    other = {type(getattr(whole, name, None)) for name in getattr(whole, "sub_configs", ())}
    other -= {type(None), type(text), type(whole)}
    return tuple(path for path, config in configured.items() if type(config) in other)


def block_stacks(module: nn.Module) -> tuple[str, ...]:
    """Return the paths of the outermost block stacks of a model, in the model's order.

    A block stack is a `ModuleList` whose elements are of one class and each hold at least two
    modules with parameters of their own: a list of blocks, not of single layers. An
    encoder-decoder has two; those of parts that read images or sound are left out.
    """
    towers = tuple(f"{path}." for path in _find_towers(module))
    paths = (plain_name(path) for path in _find_stacks(module, ""))
    return tuple(path for path in paths if not f"{path}.".startswith(towers))


def _find_stacks(module: nn.Module, path: str) -> Iterator[str]:
    if _is_stack(module):
        yield path
        return
    for name, child in module.named_children():
        yield from _find_stacks(child, f"{path}.{name}" if path else name)


def _is_stack(module: nn.Module) -> bool:
    if not isinstance(module, nn.ModuleList) or len(module) == 0:
        return False
    return len({original_class(element) for element in module}) == 1 and all(map(_is_block, module))


def _is_block(module: nn.Module) -> bool:
    """Say whether at least two modules in `module`, itself included, own parameters."""
    owners = (next(inner.parameters(recurse=False), None) for inner in module.modules())
    return sum(owner is not None for owner in owners) >= 2
