"""What a dense run depends on beside weights, data and settings, for cache keys.

Two models with the same weights may differ in an activation. Modules of known libraries are told by
class and settings, all other code by its source text.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
from collections.abc import Mapping, Sequence, Set
from typing import Any

from avalanche.models import MultiTaskModule
from torch import Tensor, nn

from cl_graft.grafts.hashing import hash_tensors
from cl_graft.metrics.task_score import Scorer
from cl_graft.models import TaskModel
from cl_graft.strategies.heads import Head, find_head_paths
from cl_graft.training.examples import Examples

_DEEPEST = 6
_PLAIN = (bool, int, float, str, type(None))
_LIBRARIES = ("torch", "transformers", "avalanche", "peft", "cl_graft")
_ORIGINS = {"_name_or_path", "architectures", "transformers_version"}
"""Fields of a model's config that say where it came from, not how it computes."""


def hash_reading(
    model: nn.Module,
    heads: Sequence[Head],
    *,
    parameters: Mapping[str, nn.Parameter],
    criterion: Any,
    scorer: str | Scorer,
    dev: Examples,
) -> str:
    """Hash what the outcome of training depends on beside weights, data and settings."""
    config: Any = getattr(getattr(model, "backbone", model), "config", None)
    settings = config.to_dict() if hasattr(config, "to_dict") else {}
    words = {
        f"{place}.{name}": t for place, h in enumerate(heads) for name, t in h.buffers().items()
    }
    chosen_by = scorer
    if not isinstance(scorer, str):
        chosen_by = [scorer.name, scorer.references(dev.batch(range(len(dev)))[1])]
    text = json.dumps(
        [
            {name: value for name, value in settings.items() if name not in _ORIGINS},
            hash_tensors(words),
            _describe_modules(model, without=find_head_paths(model)),
            [_describe_modules(head.module) for head in heads],
            [[name, list(tensor.shape)] for name, tensor in parameters.items()],
            getattr(model, "precision", "fp32"),
            describe(criterion),
            chosen_by,
        ],
        sort_keys=True,
        default=str,
    )
    return hashlib.sha256(text.encode()).hexdigest()


def describe(value: Any, *, depth: int = 0) -> Any:
    """Describe a loss or a part of one, as JSON that is the same if it computes the same."""
    if isinstance(value, _PLAIN):
        return value
    if inspect.isclass(value) or depth > _DEEPEST:
        return _tell_code(value if inspect.isclass(value) else type(value))
    inner = functools.partial(describe, depth=depth + 1)
    if isinstance(value, Tensor):
        return hash_tensors({"tensor": value})
    if isinstance(value, nn.Module):
        tensors = {**dict(value.named_parameters()), **dict(value.named_buffers())}
        return [_describe_modules(value), hash_tensors(tensors)]
    if isinstance(value, functools.partial):
        return [inner(value.func), inner(value.args), inner(value.keywords)]
    if inspect.ismethod(value):
        return [inner(value.__func__), inner(value.__self__)]
    if inspect.isfunction(value):
        enclosed = [cell.cell_contents for cell in value.__closure__ or ()]
        return [_tell_code(value), inner(value.__defaults__), inner(enclosed)]
    if isinstance(value, Mapping):
        return sorted(([str(key), inner(held)] for key, held in value.items()), key=str)
    if isinstance(value, Set):
        return sorted(map(inner, value), key=str)
    if isinstance(value, list | tuple):
        return [inner(held) for held in value]
    if inspect.isroutine(value):
        return _tell_code(value)
    return [_tell_code(type(value)), inner(getattr(value, "__dict__", {}))]


def _describe_modules(model: nn.Module, *, without: Sequence[str] = ()) -> list[Any]:
    """Return path, class and settings of every module, but for those below some paths."""
    below = tuple(f"{path}." if path else "" for path in without)
    return [
        [path, _tell_code(type(module)), module.extra_repr(), _list_settings(module)]
        for path, module in model.named_modules()
        if path not in without and not (below and path.startswith(below))
    ]


def _list_settings(module: nn.Module) -> list[tuple[str, Any]]:
    # Avalanche's modules count tasks and classes, which says nothing of what they compute.
    held = {} if isinstance(module, MultiTaskModule) else vars(module)
    aside = {"name_or_path", "training", *(["name"] if isinstance(module, TaskModel) else [])}
    return sorted(
        (name, value)
        for name, value in held.items()
        if isinstance(value, _PLAIN) and not name.startswith("_") and name not in aside
    )


@functools.lru_cache(maxsize=64)
def _tell_code(thing: Any) -> str:
    """Return the name of a class or a function, with its source text if no library made it."""
    name = f"{thing.__module__}.{thing.__qualname__}"
    if str(thing.__module__).partition(".")[0] in _LIBRARIES:
        return name
    try:
        return f"{name}\n{inspect.getsource(thing)}"
    except (OSError, TypeError):  # typed into an interpreter, or of an extension module
        return name
