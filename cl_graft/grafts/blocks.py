"""The blocks of a model: which parameters lie in its upper ones.

Embeddings lie below the first block; poolers and final norms lie above the last one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, TypeVar

from torch import nn

from cl_graft.errors import InputError
from cl_graft.runtime.tensor_names import modules_by_path

Layers = int | Literal["all", "upper"]
"""Blocks that a region may reach, from the top: a number, the upper half, or all."""

_BLOCK = re.compile(r"^(?:(.+?)\.)?(\d+)\.")
_Value = TypeVar("_Value")


def find_block(name: str) -> str:
    """Return the path of the outermost block that holds a parameter or module; empty for none."""
    match = _BLOCK.match(name)
    return match[0][:-1] if match else ""


def select_upper(
    model: nn.Module, parameters: Mapping[str, _Value], layers: Layers
) -> dict[str, _Value]:
    """Return those of the parameters of a model's blocks that lie in its upper blocks.

    A model that has not as many blocks, or not one list of blocks, is refused by `InputError`.
    """
    if layers == "all" or not parameters:
        return dict(parameters)
    matches = {name: _BLOCK.match(name) for name in parameters}
    paths = {match[1] or "" if match else "" for match in matches.values()}
    path = next(iter(paths)) if len(paths) == 1 else ""
    stack = modules_by_path(model).get(path)
    if not isinstance(stack, nn.ModuleList):
        lists = ", ".join(sorted(paths - {""})) or "none"
        raise InputError(
            "layers can be chosen where all that may be grafted lies in one list of blocks, as in "
            f"an encoder or a decoder; lists of blocks of this model: {lists}; use layers='all'"
        )
    size = len(stack)
    count = (size + 1) // 2 if layers == "upper" else layers
    if not 1 <= count <= size:
        shared = ", as blocks that share their weights (ALBERT) count as one"
        raise InputError(
            f"layers must be in [1, {size}], 'upper' or 'all', got {layers}: the model has {size} "
            f"block{'s' if size > 1 else ''} in {path!r}{shared if size == 1 else ''}"
        )
    upper = {
        name: value
        for name, value in parameters.items()
        if (match := matches[name]) and int(match[2]) >= size - count
    }
    if not upper:
        raise InputError(f"nothing that may be grafted lies in the upper {layers} blocks")
    return upper
