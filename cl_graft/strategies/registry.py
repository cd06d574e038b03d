"""The strategies of experiments, one row each: what it is, where it comes from, how it is built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from avalanche.training.templates import SupervisedTemplate

from cl_graft.errors import InputError, find
from cl_graft.strategies.baselines import (
    bounds,
    distillation,
    inserted,
    low_rank,
    masks,
    packnet,
    penalties,
    prototypes,
    rehearsal,
)
from cl_graft.strategies.graft_rows import ROWS as GRAFTING
from cl_graft.strategies.loop.task_schedules import TaskSchedules
from cl_graft.strategies.merged_rows import ROWS as MERGING
from cl_graft.strategies.method_settings import Value, resolved
from cl_graft.strategies.registered import StrategyRow, listed_only
from cl_graft.strategies.routed_rows import ROWS as ROUTED
from cl_graft.strategies.strategy_inputs import StrategyInputs
from cl_graft.training.fine_tuning import FineTuning

__all__ = ["STRATEGIES", "available", "build_strategy", "find_strategy", "loop_schedules"]

_AVALANCHE = "Avalanche 0.6"

_CANNOT_RUN = (
    listed_only(
        "bic",
        "rehearsal",
        "Wu et al., 2019, https://arxiv.org/abs/1905.13260; Avalanche's BiC",
        broken=f"{_AVALANCHE}'s BiC passes MultiStepLR an argument that torch has removed",
    ),
    listed_only(
        "icarl",
        "rehearsal",
        "Rebuffi et al., 2017, https://arxiv.org/abs/1611.07725; Avalanche's ICaRL",
        broken=f"{_AVALANCHE}'s ICaRL needs a benchmark of its older class-incremental kind",
    ),
    listed_only(
        "gss",
        "rehearsal",
        "Aljundi et al., 2019, https://arxiv.org/abs/1903.08671; Avalanche's GSS_greedy",
        broken=f"{_AVALANCHE}'s GSS_greedy keeps inputs as floats, which are no token ids, and "
        "knows no task labels",
    ),
    listed_only(
        "avalanche_packnet",
        "isolation",
        "Mallya and Lazebnik, 2018, https://arxiv.org/abs/1711.05769; Avalanche's PackNet",
        broken=f"{_AVALANCHE}'s PackNet refuses modules with parameters other than Linear and "
        "convolutions: a transformer's embeddings and LayerNorms",
    ),
)

STRATEGIES: Mapping[str, StrategyRow] = MappingProxyType(
    {
        row.name: row
        for row in (
            *GRAFTING,
            *ROUTED,
            *MERGING,
            *bounds.ROWS,
            *penalties.ROWS,
            *distillation.ROWS,
            *rehearsal.ROWS,
            *prototypes.ROWS,
            *inserted.ROWS,
            *low_rank.ROWS,
            *packnet.ROWS,
            *masks.ROWS,
            *_CANNOT_RUN,
        )
    }
)


def available(
    *, encoder: bool = True, ablations: bool = False, scenario: str = "task"
) -> list[str]:
    """Return the names of the strategies that can run here.

    Args:
        encoder: On an encoder, or on other models.
        ablations: The ablations of grafting, or all others.
        scenario: In which form of a stream.
    """
    return [
        name
        for name, row in STRATEGIES.items()
        if not row.unavailable
        and (encoder or not row.encoders_only)
        and (row.family == "ablation") == ablations
        and scenario not in row.refuses
    ]


def find_strategy(name: str) -> StrategyRow:
    """Look a strategy up.

    Raises:
        InputError: If there is none of this name; the nearest one is named.
    """
    return find(STRATEGIES, name, missing="unknown strategy")


def build_strategy(name: str, inputs: StrategyInputs, **settings: Value) -> SupervisedTemplate:
    """Build a strategy, ready to be trained on the experiences of its stream.

        inputs = StrategyInputs(model=model, stream=stream, fine_tuning=FineTuning(steps=200))
        strategy = build_strategy("ewc", inputs, ewc_lambda=10.0)
        strategy.train(stream.benchmark.train_stream[0])

    Each task is trained with its own steps, batch size and learning rate.

    Args:
        name: The strategy's name.
        inputs: Model, stream and settings that all strategies share.
        **settings: The strategy's own settings; the others keep their defaults.

    Raises:
        InputError: If the name or a setting is unknown, or the strategy cannot be built.
    """
    row = find_strategy(name)
    if row.unavailable:
        raise InputError(f"strategy {name!r} is not available: {row.unavailable}")
    own = resolved(row.settings, settings, owner=name)
    schedules = TaskSchedules(loop_schedules(row, inputs, own))
    return row.build(replace(inputs, settings=own, plugins=(schedules, *inputs.plugins)))


def loop_schedules(
    row: StrategyRow, inputs: StrategyInputs, settings: Mapping[str, Value]
) -> dict[int, FineTuning]:
    """Return steps, batch size and learning rate of a strategy's loop, by task label.

    Args:
        row: The strategy; see `StrategyRow.trains` and `StrategyRow.budget`.
        inputs: What it is built from.
        settings: The strategy's own settings, its learning rate among them where it has one.
    """
    dense = inputs.dense_runs
    if row.trains == "region":
        return {
            label: replace(schedule, lr=inputs.region_lr, weight_decay=0.0)
            for label, schedule in dense.items()
        }
    steps = [schedule.steps for schedule in dense.values()]
    due = {
        "task": steps,
        "so far": [sum(steps[: place + 1]) for place in range(len(steps))],
        "stream": [sum(steps), *steps[1:]],
    }[row.budget]
    return {
        label: replace(schedule, steps=count, lr=settings.get("lr", schedule.lr))
        for (label, schedule), count in zip(dense.items(), due, strict=True)
    }
