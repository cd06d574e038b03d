"""Descriptions of how a model and its loss compute, for the keys of cached dense runs.

Weights do not say it all: two models with the same weights may differ in an activation, and two
losses in the weight of a class.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
from collections.abc import Iterable, Mapping, Set
from types import CodeType
from typing import Any

from avalanche.models import MultiTaskModule
from torch import Tensor, nn

from cl_graft.grafts.hashing import hash_tensors
from cl_graft.models import TaskModel

__all__ = ["describe", "describe_model"]

_DEEPEST = 6
_PLAIN = (bool, int, float, str, type(None))
_PLACES = {"name_or_path", "training"}
"""Settings of modules that say where a model came from, or which mode it is in."""


def describe_model(model: nn.Module, *, exclude: Iterable[str] = ()) -> list[Any]:
    """Describe what a model computes with its weights, as JSON.

    It holds the path, class, settings and code of `forward` of every module, but no weights.

    Args:
        model: The model.
        exclude: Paths of modules that are left out, with all below them.
    """
    out = tuple(exclude)
    if "" in out:
        return []
    below = tuple(f"{path}." for path in out)
    return [
        [path, *_module(module)]
        for path, module in model.named_modules()
        if path not in out and not (below and path.startswith(below))
    ]


def describe(value: Any, *, depth: int = 0) -> Any:
    """Describe a loss or a part of one, as JSON that is the same if it computes the same.

    Functions are described by their code, their defaults and what they enclose; modules by class,
    settings and tensors; other objects by their class and what they hold.

    Args:
        value: A loss, or a part of one.
        depth: Depth in another value; a value that lies too deep is described by its class.
    """
    if isinstance(value, _PLAIN):
        return value
    if depth > _DEEPEST:
        return _name(type(value))
    inner = functools.partial(describe, depth=depth + 1)
    if isinstance(value, Tensor):
        return hash_tensors({"tensor": value})
    if isinstance(value, nn.Module):
        children = [[name, inner(child)] for name, child in value.named_children()]
        tensors = {**dict(value.named_parameters()), **dict(value.named_buffers())}
        return [*_module(value), hash_tensors(tensors), children]
    if isinstance(value, functools.partial):
        return [inner(value.func), inner(value.args), inner(value.keywords)]
    if inspect.ismethod(value):
        return [inner(value.__func__), inner(value.__self__)]
    if inspect.isfunction(value):
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        code = _code(value.__code__, value.__doc__)
        return [_name(value), code, inner(value.__defaults__), inner(cells)]
    if isinstance(value, Mapping):
        return sorted(([str(key), inner(held)] for key, held in value.items()), key=str)
    if isinstance(value, Set):
        return sorted((inner(held) for held in value), key=str)
    if isinstance(value, list | tuple):
        return [inner(held) for held in value]
    return [_name(value if inspect.isclass(value) else type(value)), inner(_list_attributes(value))]


def _module(module: nn.Module) -> list[Any]:
    """Return class, settings and code of a module."""
    # Avalanche's modules count tasks and classes, which says nothing of what they compute.
    held = {} if isinstance(module, MultiTaskModule) else vars(module)
    aside = _PLACES | ({"name"} if isinstance(module, TaskModel) else set())
    settings = {
        name: value
        for name, value in held.items()
        if isinstance(value, _PLAIN) and not name.startswith("_") and name not in aside
    }
    forward = inspect.unwrap(type(module).forward)
    code = _code(forward.__code__, forward.__doc__) if inspect.isfunction(forward) else ""
    return [_name(type(module)), module.extra_repr(), sorted(settings.items()), code]


def _list_attributes(value: Any) -> dict[str, Any]:
    return {} if inspect.isclass(value) else dict(getattr(value, "__dict__", {}))


def _name(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}"


def _code(code: CodeType, docstring: str | None = None) -> str:
    """Hash what code does, whichever file and line it stands in, and whatever its docstring says.

    The docstring of a function is the first constant of its code.
    """
    constants = [
        _code(constant)
        if isinstance(constant, CodeType)
        else sorted(map(repr, constant))
        if isinstance(constant, frozenset)
        else repr(constant)
        for place, constant in enumerate(code.co_consts)
        if place or constant != docstring
    ]
    text = json.dumps([code.co_code.hex(), code.co_names, code.co_varnames, constants])
    return hashlib.sha256(text.encode()).hexdigest()
