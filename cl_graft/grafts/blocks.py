"""The stack of blocks of a model: which parameters lie in its upper blocks.

Blocks are counted from the bottom. Embeddings lie below the first block; poolers and final norms
lie above the last one, and heads above those.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

from torch import nn

from cl_graft.errors import InputError
from cl_graft.runtime.tensor_names import modules_by_path

__all__ = ["BlockStack", "Layers", "find_block_stack", "select_upper"]

Layers = int | Literal["all", "upper"]
"""Blocks that a region may reach, from the top: a number, the upper half, or all."""

_BLOCK = re.compile(r"^(?:(.+?)\.)?(\d+)\.")
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class BlockStack:
    """The one list of blocks that a model passes its states through.

    Attributes:
        path: Path of the list in the model.
        size: Number of blocks.
    """

    path: str
    size: int

    def blocks(self, model: nn.Module) -> list[nn.Module]:
        """Return the blocks of the model, from the bottom."""
        return list(modules_by_path(model)[self.path].children())

    def find_number(self, name: str) -> int:
        """Return the number of the block that a parameter of this name lies in."""
        return int(name[len(self.path) + 1 :].partition(".")[0])

    def first(self, layers: Layers) -> int:
        """Return the number of the lowest block that a region may touch.

        Args:
            layers: The number of upper blocks; "upper" is the upper half, rounded up.

        Raises:
            InputError: If there are not as many blocks.
        """
        if layers == "all":
            return 0
        count = (self.size + 1) // 2 if layers == "upper" else layers
        if not 1 <= count <= self.size:
            shared = ", as blocks that share their weights (ALBERT) count as one"
            raise InputError(
                f"layers must be in [1, {self.size}], 'upper' or 'all', got {layers}: the model "
                f"has {self.size} block{'s' if self.size > 1 else ''} in {self.path!r}"
                f"{shared if self.size == 1 else ''}"
            )
        return self.size - count


def find_block_stack(model: nn.Module, names: Iterable[str]) -> BlockStack:
    """Find the list of blocks that some parameters lie in.

    Args:
        model: The model.
        names: Names of parameters of its blocks.

    Raises:
        InputError: If the parameters do not lie in the blocks of one list.
    """
    matches = [_BLOCK.match(name) for name in names]
    paths = {match[1] or "" if match else "" for match in matches}
    path = next(iter(paths)) if len(paths) == 1 else ""
    stack = modules_by_path(model).get(path)
    if not isinstance(stack, nn.ModuleList):
        found = ", ".join(sorted(paths - {""})) or "none"
        raise InputError(
            "layers can be chosen where all that may be grafted lies in one list of blocks, as in "
            f"an encoder or a decoder; lists of blocks of this model: {found}; use layers='all'"
        )
    return BlockStack(path, len(stack))


def select_upper(
    model: nn.Module, parameters: Mapping[str, _Value], layers: Layers
) -> dict[str, _Value]:
    """Return those of the parameters of a model's blocks that lie in its upper blocks.

    Args:
        model: The model.
        parameters: Parameters of its blocks by name, or something else by their names.
        layers: The number of upper blocks.

    Raises:
        InputError: If the model has not as many blocks, or not one list of blocks.
    """
    if layers == "all" or not parameters:
        return dict(parameters)
    stack = find_block_stack(model, parameters)
    first = stack.first(layers)
    found = {name: value for name, value in parameters.items() if stack.find_number(name) >= first}
    if not found:
        raise InputError(f"nothing that may be grafted lies in the upper {layers} blocks")
    return found
