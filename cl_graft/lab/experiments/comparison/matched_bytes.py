"""Sizes of strategies that store at most a number of bytes a task, heads and indices counted.

Grafting gets the largest region whose entry of a bank fits, a LoRA the largest rank, replay the
most rows. Bounds are not compared by their bytes, so they run as they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import nn

from cl_graft.data import TextTask
from cl_graft.errors import InputError
from cl_graft.kinds.text_task import make_task_head
from cl_graft.lab.experiments.comparison.tuning import with_values
from cl_graft.lab.experiments.memory_estimate.plan import entry_bytes
from cl_graft.lab.experiments.run_setup import describe_shape
from cl_graft.lab.results.comparison import Size
from cl_graft.models import Loaded, graftable_parameters
from cl_graft.runtime.byte_sizes import largest_within
from cl_graft.settings import ExperimentConfig
from cl_graft.strategies import count_bytes
from cl_graft.strategies.method import Method, StreamShape
from cl_graft.strategies.registry import find_strategy

_MOST = 2**40

_NAMES = 256
"""Bytes by which names and numbers in an entry may be longer than those of the estimate."""


def sizes_within(
    budget: int, config: ExperimentConfig, loaded: Loaded, tasks: Sequence[TextTask]
) -> tuple[dict[str, Size], dict[str, str]]:
    """Return the sizes of the strategies that fit, and why the others do not, each by name.

    Raises:
        InputError: If none fits but bounds, or standalone grafts are asked for.
    """
    if config.grafting.keep_standalone:
        raise InputError("bytes_per_task counts no standalone grafts: leave keep_standalone out")
    widest = max(tasks, key=lambda task: task.num_outputs)
    head = _head(widest, loaded, config)
    shape = describe_shape(loaded.model, config, tasks)
    sizes: dict[str, Size] = {}
    unmet: dict[str, str] = {}
    for name in config.comparison.strategies:
        try:
            sizes[name] = _size(find_strategy(name), budget, config, shape, head)
        except InputError as error:
            unmet[name] = str(error)
    if all(size.bytes is None for size in sizes.values()):
        said = "; ".join(f"{name}: {reason}" for name, reason in unmet.items())
        raise InputError(f"no strategy can be sized to {budget:,} bytes a task: {said}")
    return sizes, unmet


def resize_strategy(config: ExperimentConfig, strategy: str, size: Size) -> ExperimentConfig:
    """Return the config under which a sized strategy is compared."""
    values = {} if size.value is None else {size.setting: size.value}
    own = with_values(config, find_strategy(strategy), values)
    return own.with_values(
        {"comparison.tune": config.comparison.tune, "comparison.bytes_per_task": None}
    )


def _size(
    method: Method, budget: int, config: ExperimentConfig, shape: StreamShape, head: nn.Module
) -> Size:
    """Size one strategy; an InputError says why it does not fit."""
    if method.is_bound:
        return Size()
    if method.stored_as == "entry" or method.family == "merging":
        return _density(method, budget, shape, head)
    heads = count_bytes(head.state_dict())
    if not method.has_size:
        raise InputError(f"there is no size to set: it adds {method.adds}")
    name, own = method.size_setting, config.comparison.strategy_settings.get(method.name, {})
    if not name or own.get(name):
        value, within = int(own.get(name, 0)), int(method.task_bytes(shape, own)) + heads
        if within > budget:
            why = f"with the {name} that the config sets" if value else "and it has no size to set"
            raise InputError(f"a task adds {within:,} bytes, {why}")
        return Size(name, value or None, within)
    least = next(int(setting.min_value or 1) for setting in method.settings if setting.is_size)

    def size(value: int) -> float:
        return method.task_bytes(shape, {**own, name: value}) + heads

    most = method.largest_size(shape, otherwise=_MOST)
    value = largest_within(budget, size, least=least, most=most)
    return Size(name, value, round(size(value)))


def _density(method: Method, budget: int, shape: StreamShape, head: nn.Module) -> Size:
    """Return the density whose entry of a bank fits, or whose graft to be merged does."""
    total = sum(p.numel() for p in graftable_parameters(shape.model).values())
    beside = math.ceil(method.task_bytes(shape, {})) if method.has_size else 0

    def size(coordinates: int) -> int:
        entry = entry_bytes(shape.model, head, size=coordinates, length=shape.length)
        if method.stored_as == "entry":
            return entry.total + _NAMES + beside
        return entry.indices + entry.values + entry.head + beside

    value = largest_within(budget, size, least=1, most=total)
    return Size("grafting.density", value / total, size(value))


def _head(task: TextTask, loaded: Loaded, config: ExperimentConfig) -> nn.Module:
    tokens = task.own_kind.label_tokens(
        task,
        loaded.tokenizer,
        family=config.model.family,
        max_length=config.stream.max_length or task.max_length,
    )
    return make_task_head(loaded.model, task, label_tokens=tokens, seed=0)
