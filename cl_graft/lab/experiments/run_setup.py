"""The setup of a run: the model at its base, the encoded stream, and the record before a step."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from cl_graft.data import TextTask
from cl_graft.errors import DivergedError, InputError, OutOfMemory, first_line, join_names
from cl_graft.grafts.bank import BaseIdentity
from cl_graft.grafts.model_state import preserve_modes
from cl_graft.kinds.text_task import make_task_head
from cl_graft.lab.experiments.plan import make_fake_model
from cl_graft.lab.experiments.run_measurements import RunMeasurements
from cl_graft.lab.results.run_results import machine
from cl_graft.localization import find_localizer
from cl_graft.localization.reach import find_reach, warn_if_full
from cl_graft.metrics import task_loss
from cl_graft.models import Loaded, TaskModel, graftable_parameters
from cl_graft.models.load import read_config
from cl_graft.runtime.batching import sort_by_length
from cl_graft.runtime.error_context import in_phase
from cl_graft.runtime.seeding import seeded
from cl_graft.settings import ExperimentConfig
from cl_graft.settings.bank_metadata import (
    BASE_HASHES,
    base_identity,
    load_base_model,
    task_metadata,
)
from cl_graft.settings.data_report import data_report
from cl_graft.settings.presets import GRID_BATCH_SIZES
from cl_graft.settings.run_files import versions
from cl_graft.settings.tasks import check_tasks, load_tasks, tasks_to_build_on
from cl_graft.strategies import MultiTaskText, TaskMetadata, text_model
from cl_graft.strategies.benchmark import TextStream, text_stream
from cl_graft.strategies.method import Method, StreamShape
from cl_graft.strategies.registry import find_strategy
from cl_graft.training.fine_tuning_settings import FineTuning

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Setup:
    """A model at its base, the stream that it will learn, and the record before the first step.

    Metadata and the names of tasks that a task may build on are by task label; a task without this
    setting is missing in `builds_on`.
    """

    seed: int
    device: torch.device
    stream: TextStream
    model: MultiTaskText
    identity: BaseIdentity
    metadata: dict[int, TaskMetadata]
    builds_on: dict[int, tuple[str, ...]]
    record: RunMeasurements


def check_strategy(
    method: Method,
    config: ExperimentConfig,
    tasks: Sequence[TextTask],
    *,
    shape: StreamShape | None = None,
) -> None:
    """Raise an InputError if a strategy cannot run on the config's model, scenario and tasks.

    Where no shape is given, a model of fake tensors is made if it is needed.
    """
    if method.unavailable:
        raise InputError(f"strategy {method.name!r} is not available: {method.unavailable}")
    if method.encoders_only and config.model.family != "encoder":
        raise InputError(
            f"strategy {method.name!r} works on an encoder's features; family is "
            f"{config.model.family!r}"
        )
    scenario = config.stream.scenario
    if reason := method.unsupported.get(scenario):
        raise InputError(
            f"strategy {method.name!r} cannot run in the scenario {scenario!r}: {reason}; "
            "strategies: all takes those that can"
        )
    method.check_tasks(tasks)
    try:
        grafting = config.with_values(method.fixed_config).grafting
    except InputError as error:
        raise InputError(f"strategy {method.name!r} cannot run: {error}") from None
    if shape is None:
        shape = _make_shape([method], config, tasks)
    if shape is None:
        return
    method.check_stream(shape, config.comparison.strategy_settings.get(method.name, {}))
    if _limits_regions(method, config):
        try:
            find_reach(shape.model, graftable_parameters(shape.model), grafting)
        except InputError as error:
            raise InputError(
                f"strategy {method.name!r} cannot run on this model with these settings: {error}"
            ) from None


def _limits_regions(method: Method, config: ExperimentConfig) -> bool:
    """Tell whether settings may leave a region no coordinate of the model."""
    name = method.fixed_config.get("grafting.localizer", config.grafting.localizer)
    whole = config.grafting.layers == config.grafting.modules == "all"
    return method.has_regions and not (whole and find_localizer(name).allowed is None)


def _make_shape(
    methods: Sequence[Method], config: ExperimentConfig, tasks: Sequence[TextTask]
) -> StreamShape | None:
    """Make the config's model of fake tensors, if one of the strategies depends on it."""
    if not any(method.checks_stream or _limits_regions(method, config) for method in methods):
        return None
    model = config.model
    read = read_config(model.name, family=model.family, trust_remote_code=model.trust_remote_code)
    return describe_shape(make_fake_model(read, model).model, config, tasks)


def describe_shape(
    model: TaskModel, config: ExperimentConfig, tasks: Sequence[TextTask]
) -> StreamShape:
    """Return the properties of a model, maybe of fake tensors, and a stream known before a run.

    Where dev chooses batch sizes, the largest counts.
    """
    return StreamShape(
        model=model,
        tasks=len(tasks),
        classes=max(task.num_outputs for task in tasks),
        length=config.stream.max_length or max(task.max_length for task in tasks),
        batch_size=max(GRID_BATCH_SIZES) if config.training.grid else config.fine_tuning.batch_size,
        localizer=config.grafting.localizer,
    )


def check_strategies(
    names: Sequence[str], config: ExperimentConfig, tasks: Sequence[TextTask]
) -> None:
    """Raise an InputError if a strategy cannot run; if several cannot, it names those that can."""
    faults = _find_faults(names, config, tasks)
    if not faults:
        return
    able = ",".join(name for name in names if name not in faults)
    several = len(faults) > 1 and bool(able)
    first = next(iter(faults.values()))
    raise InputError(f"{first}; those that can run here: --strategies {able}" if several else first)


def _find_faults(
    names: Iterable[str], config: ExperimentConfig, tasks: Sequence[TextTask]
) -> dict[str, str]:
    """Return why strategies cannot run, by name, of those that cannot."""
    methods = [find_strategy(name) for name in names]
    shape = _make_shape(methods, config, tasks)
    faults: dict[str, str] = {}
    for method in methods:
        try:
            check_strategy(method, config, tasks, shape=shape)
        except InputError as error:
            faults[method.name] = str(error)
    return faults


def keep_able_strategies(config: ExperimentConfig) -> ExperimentConfig:
    """Return the config without the strategies of ``all`` that cannot learn its tasks on its model.

    They are named in a log message, with the reason of the first. What the config names itself
    stays. An InputError says that tasks or model cannot be loaded, or that no strategy can run.
    """
    asked = config.comparison
    if not asked.grouped:
        return config
    tasks = load_tasks(config.stream, seed=asked.seeds[0])
    faults = _find_faults(asked.grouped, config, tasks)
    able = [name for name in asked.strategies if name not in faults]
    if faults and not able:
        raise InputError(next(iter(faults.values())))
    if left_out := [name for name in asked.strategies if name in faults]:
        reason = faults[left_out[0]]
        logger.warning("left out, as they cannot run here: %s; %s", join_names(left_out), reason)
    return config.with_values({"comparison.strategies": able})


def evaluates_unseen_tasks(
    config: ExperimentConfig, method: Method
) -> Literal["always", "once", "never"]:
    """Return when tasks are evaluated before they are learned: ``stream.evaluate_ahead``.

    A prompt, or a head that all tasks share, can answer a task before it was learned. A head of the
    task's own would answer at chance before, so the task is not evaluated.
    """
    can_answer = config.model.family != "encoder" or config.stream.scenario == "domain"
    if not can_answer or method.trains == "nothing":
        return "never"
    return config.stream.evaluate_ahead


def load_stream(config: ExperimentConfig, tasks: Sequence[TextTask]) -> tuple[Loaded, TextStream]:
    """Load the base of a config and encode tasks for it; an InputError says what does not fit."""
    loaded = load_base_model(config.model)
    check_tasks(tasks, loaded, config.stream)
    stream = text_stream(
        tasks,
        loaded.tokenizer,
        family=config.model.family,
        max_length=config.stream.max_length,
        one_head=config.stream.scenario != "task",
    )
    return loaded, stream


def set_up(
    config: ExperimentConfig,
    method: Method,
    tasks: Sequence[TextTask],
    *,
    seed: int,
    device: torch.device,
) -> Setup:
    """Load the model, encode the stream and try a step; an InputError says what does not work."""
    check_strategy(method, config, tasks)
    loaded, stream = load_stream(config, tasks)
    builds_on = tasks_to_build_on(config.stream, tasks)
    if method.stored_as == "entry":
        grafting = config.with_values(method.fixed_config).grafting
        parameters = graftable_parameters(loaded.model)
        if len({parameter.dtype for parameter in parameters.values()}) > 1:
            raise InputError(
                f"transformers keeps some matrices of {loaded.name!r} in float32 at dtype "
                f"{config.model.dtype!r}, and a graft has one type: take bfloat16 or float32"
            )
        reach = find_reach(loaded.model, parameters, grafting)
        warn_if_full(reach, grafting, tasks=_count_together([t.name for t in tasks], builds_on))
    length = stream.tasks[0].splits["train"][0].shape[-1]
    identity = base_identity(loaded, config, seed=seed)
    record = RunMeasurements(
        strategy=method.name,
        seed=seed,
        tasks=stream.names,
        metrics={task.name: task.scored_by for task in tasks},
        data_fingerprints={task.name: task.fingerprint for task in tasks},
        model={
            "name": loaded.name,
            "family": config.model.family,
            "fingerprint": identity.fingerprint,
            "precision": config.model.precision,
            "graftable": sum(p.numel() for p in graftable_parameters(loaded.model).values()),
            **{name: identity.metadata[name] for name in BASE_HASHES},
        },
        settings=method.check_settings(config.comparison.strategy_settings.get(method.name, {})),
        versions=versions(device),
        machine=machine(device),
        data=data_report(stream),
    )
    model = text_model(loaded, stream, seed=seed, one_head=stream.one_head).to(device)
    try_step(model.task_model, stream, config.fine_tuning)
    return Setup(
        seed=seed,
        device=device,
        stream=stream,
        model=model,
        identity=identity,
        metadata={
            label: task_metadata(
                task,
                config,
                seed=seed,
                max_length=length,
                builds_on=builds_on.get(label),
                targets=stream.tasks[label].splits["train"][1],
            )
            for label, task in enumerate(tasks)
        },
        builds_on=builds_on,
        record=record,
    )


def _count_together(names: Sequence[str], builds_on: Mapping[int, Sequence[str]]) -> int:
    """Return the largest number of tasks whose grafts lie in one model."""
    together: list[set[int]] = []
    for label in range(len(names)):
        under = builds_on.get(label, names)
        earlier = [held for name, held in zip(names, together, strict=False) if name in under]
        together.append({label}.union(*earlier))
    return max(map(len, together))


def try_step(model: TaskModel, stream: TextStream, settings: FineTuning) -> None:
    """Compute a batch of the longest rows of all tasks forward and backward.

    The model, on its device and without heads, is left as it was. An InputError says that it cannot
    take a step with these settings, OutOfMemory that there is too little memory.
    """
    count = min(settings.batch_size, settings.micro_batch or settings.batch_size)
    lengths = [(task.splits["train"][0][:, 1] != 0).sum(1) for task in stream.tasks]
    longest = max(range(len(lengths)), key=lambda number: int(lengths[number].max()))
    task, rows = stream.tasks[longest], sort_by_length(lengths[longest])[:count]
    inputs, targets = (tensor[rows].to(model.device) for tensor in task.splits["train"])
    # The gradient of the lowest parameter passes through all blocks.
    lowest = next(iter(graftable_parameters(model).values()))
    model.add_head(0, make_task_head(model, task.task, label_tokens=task.label_tokens, seed=0))
    try:
        with preserve_modes(model), seeded(0, "memory"), in_phase("dense fine-tuning"):
            model.train()
            loss = task_loss(model(inputs, 0), targets)
            torch.autograd.grad(loss, lowest, allow_unused=True)
    except (InputError, DivergedError, OutOfMemory):
        raise
    except Exception as error:  # whatever the code of an architecture raises
        again = " and gradient checkpointing" if model.recomputes else ""
        raise InputError(
            f"{model.name!r} cannot take a training step on {model.device} with dtype "
            f"{str(lowest.dtype).removeprefix('torch.')}, precision {model.precision}{again}: "
            f"{first_line(error)}"
        ) from error
    finally:
        del model.heads["0"]
