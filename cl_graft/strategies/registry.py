"""The registry of strategies: every method by its name, from this package and from others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import Any, TypeVar, dataclass_transform

from avalanche.core import SupervisedPlugin
from avalanche.training.templates import SupervisedTemplate

from cl_graft.errors import InputError
from cl_graft.localization.grafting_settings import REGION_LR
from cl_graft.models.graftable import weight_scale
from cl_graft.runtime.registry import Registry
from cl_graft.strategies.loop.steps_and_rates import RateSchedule, RegionRate, TaskSchedules
from cl_graft.strategies.method import Family, Method, StreamShape, Value, setting
from cl_graft.strategies.strategy_inputs import StrategyInputs
from cl_graft.training.fine_tuning_settings import FineTuning, Optimizer
from cl_graft.training.rate_schedule import Decay, with_rate_schedule

_Kind = TypeVar("_Kind", bound=type)

STRATEGIES: Registry[Method] = Registry(
    "strategy",
    group="cl_graft.strategies",
    load_own=lambda: import_module("cl_graft.strategies.grafting_methods"),
    load_others=lambda: import_module("cl_graft.lab.baselines"),
)
"""All methods by name; those of installed packages come from the entry points of this group."""


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(setting,))
def register_strategy(
    name: str, *, family: Family, source: str, **traits: Any
) -> Callable[[_Kind], _Kind]:
    """Register the class that follows as a method.

    For example::

        @register_strategy("ewc", family="penalty", source="Kirkpatrick et al., 2017")
        class EWC:
            ewc_lambda: float = setting(100.0, "Weight of the penalty.", min_value=0)

            def build(self, inputs):
                return inputs.naive(EWCPlugin(self.ewc_lambda))

    The class becomes a frozen dataclass. `Method.kind` lists the methods that it can have beside
    `build`. A class can be registered under several names.

    Args:
        name: Name in configs and on the command line.
        family: Family of the method.
        source: Paper or library.
        **traits: More fields of `Method`, such as `unsupported`; each has a default.

    Raises:
        TypeError: If `Method` has no such field.
        ValueError: If the name is taken, or the class cannot build a strategy.
    """

    def register(kind: _Kind) -> _Kind:
        if not hasattr(kind, "build"):
            raise ValueError(f"the class of the strategy {name!r} needs a method build(inputs)")
        is_registered = "__dataclass_fields__" in vars(kind)
        cls = kind if is_registered else dataclass(frozen=True, kw_only=True)(kind)
        method = Method(name=name, kind=cls, family=family, source=source, **traits)
        STRATEGIES.register(name, method)
        return cls

    return register


def list_available(
    *, encoder: bool = True, ablations: bool = False, scenario: str = "task"
) -> list[str]:
    """Return the names of the methods that can run here: ablations of grafting, or all others.

    Examples:
        >>> "grafting" in list_available(), "lwf" in list_available(scenario="class")
        (True, True)
    """
    return [
        name
        for name, method in STRATEGIES.items()
        if not method.unavailable
        and (encoder or not method.encoders_only)
        and (method.family == "ablation") == ablations
        and scenario not in method.unsupported
    ]


def find_strategy(name: str) -> Method:
    """Return the method of a name.

    Raises:
        InputError: If there is none; the nearest one is named.
    """
    return STRATEGIES.find(name)


def build_strategy(name: str, inputs: StrategyInputs, **settings: Value) -> SupervisedTemplate:
    """Build a strategy, ready to be trained on the experiences of its stream.

    For example::

        inputs = StrategyInputs(model=model, stream=stream, fine_tuning=FineTuning(steps=200))
        strategy = build_strategy("ewc", inputs, ewc_lambda=10.0)
        strategy.train(stream.benchmark.train_stream[0])

    Each task is trained with its own steps, batch size and learning rate. Settings of the method
    that are not given keep their defaults.

    Raises:
        InputError: If the name or a setting is unknown, or the strategy cannot be built, or cannot
            learn tasks of these kinds.
    """
    method = find_strategy(name)
    if method.unavailable:
        raise InputError(f"strategy {name!r} is not available: {method.unavailable}")
    tasks = [encoded.task for encoded in inputs.stream.tasks]
    method.check_tasks(tasks)
    shape = StreamShape(
        model=inputs.model.task_model,
        tasks=len(tasks),
        classes=max(task.num_outputs for task in tasks),
        length=inputs.stream.tasks[0].splits["train"][0].shape[-1],
        batch_size=inputs.first_schedule.batch_size,
        localizer=next(iter(inputs.grafting_settings.values())).localizer,
    )
    method.check_stream(shape, settings)
    schedules = TaskSchedules(make_loop_schedules(method, inputs, settings), head_lr=inputs.head_lr)
    rates: list[SupervisedPlugin] = [schedules, RateSchedule(lr=1.0, steps=1)]
    by_size = inputs.region_optimizer == "adamw" and inputs.region_lr is None
    if method.trains == "region" and by_size:
        scale = weight_scale(shape.model)
        rates.append(RegionRate(scale, localizer=shape.localizer, head_lr=inputs.head_lr))
    plugins = (*rates, *inputs.plugins)
    return method.build(replace(inputs, plugins=plugins), settings)


def make_loop_schedules(
    method: Method, inputs: StrategyInputs, settings: Mapping[str, Value]
) -> dict[int, FineTuning]:
    """Return steps, batch size and learning rates of a strategy's loop, by task label."""
    dense = inputs.dense_runs
    times: Any = method.check_settings(settings).get("times_steps", 1.0)
    steps = [max(1, round(times * schedule.steps)) for schedule in dense.values()]
    counts = {
        "task": steps,
        "seen_tasks": [sum(steps[: number + 1]) for number in range(len(steps))],
        "all_tasks": [sum(steps), *steps[1:]],
    }[method.rows]
    made = partial(
        make_loop_schedule,
        method,
        settings=settings,
        optimizer=inputs.region_optimizer,
        lr=inputs.region_lr,
        decay=inputs.region_decay,
    )
    return {
        label: made(replace(schedule, steps=count))
        for (label, schedule), count in zip(dense.items(), counts, strict=True)
    }


def make_loop_schedule(
    method: Method,
    dense: FineTuning,
    *,
    settings: Mapping[str, Value] = MappingProxyType({}),
    optimizer: Optimizer = "adamw",
    lr: float | None = None,
    decay: Decay | None = None,
) -> FineTuning:
    """Return with which optimiser and learning rates a strategy trains a task."""
    if method.trains == "region":
        rates = {"optimizer": optimizer, "lr": lr or REGION_LR, "lr_decay": decay or dense.lr_decay}
        return with_rate_schedule(replace(dense, **rates, weight_decay=0.0), is_region=True)
    if method.trains == "nothing":
        return with_rate_schedule(dense)
    chosen: Any = method.check_settings(settings)
    # A method of another package may name another optimiser, of the family of AdamW.
    named: Optimizer = "sgd" if chosen.get("optimizer", "sgd") == "sgd" else "adamw"
    return with_rate_schedule(replace(dense, optimizer=named, lr=chosen.get("lr", dense.lr)))
