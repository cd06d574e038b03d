"""The weight matrices of a model by what they do: feed-forward parts, attention, named ones.

A feed-forward part is found by its form, whatever its layers are called. Its output matrix goes
from more features to fewer, and the layers before it go the other way and stand nearest to it in
the block: one (BERT, GPT-2), two (the gate of Llama), or one with the rows of both (ModernBERT).
Attention whose heads together are wider than the model has more layers beside its output matrix.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import takewhile

from torch import nn

from cl_graft.errors import InputError, nearest
from cl_graft.grafts.blocks import find_block
from cl_graft.runtime.tensor_names import modules_by_path
from cl_graft.training.coordinate_gradient import count_features, is_conv1d

Modules = str | tuple[str, ...] | dict[str, float]
"""Weights that a region may reach: `all`, `mlp`, `attention`, names or patterns, or shares."""


@dataclass(frozen=True)
class FeedForward:
    """A feed-forward part of a block, whose unit j is column j of one matrix and rows j of others.

    Attributes:
        width: Number of units.
        axes: By the name of a weight, the axis along which its units are numbered; row j + `width`
            of a layer that holds the rows of two belongs to unit j, too.
    """

    width: int
    axes: dict[str, int]


def find_feed_forward(model: nn.Module) -> list[FeedForward]:
    """Return the feed-forward parts of a model's blocks, in the model's order."""
    blocks: dict[str, dict[str, nn.Module]] = {}
    for path, module in modules_by_path(model).items():
        is_linear = isinstance(module, nn.Linear) or is_conv1d(module)
        if is_linear and (block := find_block(f"{path}.")):
            blocks.setdefault(block, {})[path] = module
    return [part for layers in blocks.values() for part in _find_in_block(layers)]


def _find_in_block(layers: Mapping[str, nn.Module]) -> Iterator[FeedForward]:
    features = {path: count_features(layer) for path, layer in layers.items()}
    for path, (width, outside) in features.items():
        backward = ((outside, width), (outside, 2 * width))
        holders = {
            other: _shared_path(path, other)
            for other, sizes in features.items()
            if width > outside and sizes in backward
        }
        holder = max(holders.values(), key=len, default=None)
        before = [other for other in holders if holders[other] == holder]
        beside = {other for other in layers if other.rpartition(".")[0] == holder}
        rows = sum(features[other][1] for other in before)
        if before and rows <= 2 * width and beside <= {path, *before}:
            axes = {path: 1, **dict.fromkeys(before, 0)}
            stored = {f"{name}.weight": is_conv1d(layers[name]) ^ axes[name] for name in axes}
            yield FeedForward(width, stored)


def _shared_path(first: str, second: str) -> str:
    """Return the path of the innermost module that holds both of two modules."""
    pairs = zip(first.split("."), second.split("."), strict=False)
    return ".".join(part for part, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def split_by_modules(
    model: nn.Module, parameters: Mapping[str, nn.Parameter], modules: Modules
) -> list[tuple[dict[str, nn.Parameter], float]]:
    """Return what a setting of modules lets a region reach, in parts with their shares.

    Without shares there is one part, of share 1. Shares are divided by their sum. A parameter that
    several names of a quota match belongs to the first of them.

    Raises:
        InputError: If a name or a pattern matches nothing.
    """
    if modules == "all":
        return [(dict(parameters), 1.0)]
    feed_forward = {name for part in find_feed_forward(model) for name in part.axes}
    left, parts = dict(parameters), {}
    for entry in [modules] if isinstance(modules, str) else modules:
        candidates = left if isinstance(modules, dict) else parameters
        parts[entry] = {name: candidates[name] for name in _match(candidates, entry, feed_forward)}
        if not parts[entry]:
            paths = [name.split(".") for name in candidates]
            known = {"mlp", "attention", *(part for path in paths for part in path)}
            known |= {".".join(path[at : at + 2]) for path in paths for at in range(len(path) - 1)}
            known = {n for n in known if n[0].isalpha() and _match(candidates, n, feed_forward)}
            inside = len(feed_forward & candidates.keys())
            raise InputError(
                f"grafting.modules: {entry!r} matches none of the {len(candidates)} parameters "
                "that localizer, layers and earlier names leave: "
                f"{inside} matrices of feed-forward parts and {len(candidates) - inside} others"
                + (f"; {nearest(entry, known)}" if known else "")
            )
        left = {name: value for name, value in left.items() if name not in parts[entry]}
    if not isinstance(modules, dict):
        return [({name: p for name, p in parameters.items() if name not in left}, 1.0)]
    total = sum(modules.values())
    return [(parts[entry], share / total) for entry, share in modules.items() if share]


def _match(parameters: Mapping[str, nn.Parameter], entry: str, feed_forward: set[str]) -> list[str]:
    """Return the names of the parameters that an entry of the setting means."""
    matrices = [name for name, parameter in parameters.items() if parameter.dim() > 1]
    if entry == "mlp":
        return [name for name in matrices if name in feed_forward]
    if entry == "attention":
        blocks = {find_block(name) for name in feed_forward}
        return [n for n in matrices if find_block(n) in blocks and n not in feed_forward]
    pattern = "*" if entry == "all" else f"*.{entry}"

    def is_named(name: str) -> bool:
        path = f".{name}".split(".")
        holders = range(2, len(path)) if parameters[name].dim() > 1 else ()
        return any(fnmatchcase(".".join(path[:n]), pattern) for n in (*holders, len(path)))

    return [name for name in parameters if is_named(name)]
