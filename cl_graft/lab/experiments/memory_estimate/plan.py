"""The plan of learning tasks with a model: memory and disk, from configs alone.

It is apart from the phases because it adds what they do not know: the disk, the available memory,
and the setting to lower where a phase does not fit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from cl_graft.errors import InputError, first_line
from cl_graft.grafts.blocks import select_upper
from cl_graft.kinds.text2text import Text2Text
from cl_graft.lab.experiments.memory_estimate.entry_size import EntryBytes, entry_bytes
from cl_graft.lab.experiments.memory_estimate.fake_model import FakeModel, make_fake_model
from cl_graft.lab.experiments.memory_estimate.phases import (
    PHASES,
    Phase,
    PhaseMemory,
    Workload,
    measure_phase,
)
from cl_graft.models import TaskModel, longest_row
from cl_graft.models.load import read_config
from cl_graft.runtime.byte_sizes import readable_bytes
from cl_graft.settings import ExperimentConfig

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

    from cl_graft.lab.experiments.time_estimate import TimeEstimate

__all__ = ["Plan", "PlannedPhase", "advise", "make_plan"]


@dataclass(frozen=True)
class PlannedPhase:
    """Memory of a phase, in bytes.

    Attributes:
        name: Name of the phase.
        kept: Bytes beside the model, from step to step.
        step: Bytes on top, in the fullest moment.
        peak: Sum of model, kept and step: what the process needs above its imports.
        fits: Whether the peak is within the memory given; None if none was given.
        advice: Setting to lower where it does not fit; empty where it fits.
    """

    name: str
    kept: int
    step: int
    peak: int
    fits: bool | None = None
    advice: str = ""


@dataclass(frozen=True)
class Plan:
    """Memory and disk that learning tasks with a model will take.

    Attributes:
        model: Name of the model.
        answer_tokens: Tokens of an answer in free text; 0 where tasks have classes.
        workload: Rows, tokens and coordinates that go through the model at a time.
        parameters: Number of the model's parameters, without heads.
        model_bytes: Bytes of its parameters and buffers in memory.
        graftable: Number of coordinates that a region may hold.
        graftable_tensors: Number of parameters that they lie in.
        region: Number of coordinates of a task's region.
        tasks: Number of tasks that fill the budget, each owning a whole region.
        entry: Bytes of the file of a task's entry, by part.
        entry_total: Bytes of the whole file.
        serving: Bytes in memory a task of a bank that is being served: coordinates, values, and
            the base's values there.
        phases: Memory of each phase.
        memory: Bytes of memory given; None if none was given.
        time: How long the config's runs will take; None where that was not measured.
    """

    model: str
    answer_tokens: int
    workload: Workload
    parameters: int
    model_bytes: int
    graftable: int
    graftable_tensors: int
    region: int
    tasks: int
    entry: EntryBytes
    entry_total: int
    serving: int
    phases: tuple[PlannedPhase, ...]
    memory: int | None
    time: TimeEstimate | None = None


def make_plan(
    config: ExperimentConfig,
    *,
    classes: int | None = None,
    answer_tokens: int | None = None,
    budget: float = 1.0,
    memory: int | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Plan:
    """Predict what learning tasks with the model of a config will take.

    No data and no weights are read: of the model's files only `config.json`. The density ``"auto"``
    is planned as the largest that it tries.

    Args:
        config: Settings to plan for.
        classes: Classes of a task; None takes as many as the config names labels, and 2 where it
            names none.
        answer_tokens: Tokens of the longest answer of a task of free text, its end included. None
            takes the longest of the config's tasks of the kind text2text: as their settings say,
            else half of `max_length`, the most that a run takes; without such tasks, the tasks have
            classes.
        budget: Share of the graftable coordinates that all tasks together may own, in (0, 1].
        memory: Bytes of memory that there are; None gives no advice.
        progress: Called as (phase, step, steps).

    Raises:
        InputError: If the config does not say how long rows are, a number is out of range, answers
            are asked of a model that writes none, there is no such model, or it is none that
            cl_graft can graft.
    """
    settings, grafting, length = config.model, config.grafting, config.stream.max_length
    if length is None:
        raise InputError("the config leaves max_length to the tasks: say it with --max-length")
    if not 0 < budget <= 1:
        raise InputError(f"budget must be in (0, 1], got {budget}")
    classes = _count_classes(config) if classes is None else classes
    if classes < 1:
        raise InputError(f"classes must be at least 1, got {classes}")
    answer = _longest_answer(config, length) if answer_tokens is None else answer_tokens
    if not 0 <= answer < length:
        raise InputError(
            f"answers need 1 to {length - 1} of the {length} tokens of max_length, got {answer}"
        )
    model_config = read_config(
        settings.name, family=settings.family, trust_remote_code=settings.trust_remote_code
    )
    fake = make_fake_model(model_config, settings, classes=classes, answer=answer)
    _check_length(fake.model, length)
    graftable = fake.parameters
    select_upper(fake.model, graftable, grafting.layers)  # refuses more than there are
    total = _count(graftable.values())
    region = grafting.coordinates(total)
    work = Workload(
        batch_size=config.fine_tuning.batch_size,
        micro_batch=config.fine_tuning.micro_batch,
        eval_batch=config.training.eval_batch,
        length=length,
        region=region,
        candidates=min(total, region * grafting.mask_candidates)
        if grafting.mask_candidates
        else total,
    )
    entry = entry_bytes(fake.model, fake.model.heads["0"], size=region, length=length)
    backbone = fake.model.backbone
    model_bytes = sum(t.nbytes for t in (*backbone.parameters(), *backbone.buffers()))
    phases = _plan_phases(
        fake,
        work,
        model_config,
        model_bytes=model_bytes,
        memory=memory,
        progress=progress,
    )
    values = next(iter(graftable.values())).element_size()
    return Plan(
        model=settings.name,
        answer_tokens=answer,
        workload=work,
        parameters=_count(backbone.parameters()),
        model_bytes=model_bytes,
        graftable=total,
        graftable_tensors=len(graftable),
        region=region,
        tasks=int(budget * total) // region,
        entry=entry,
        entry_total=entry.total,
        serving=region * (8 + 2 * values),
        phases=phases,
        memory=memory,
    )


def _count_classes(config: ExperimentConfig) -> int:
    """Return the most classes that the config names of a task; 2 where it names none."""
    named = [len(own.label_names or ()) for own in config.stream.task_settings.values()]
    return max([2, *named])


def _plan_phases(
    fake: FakeModel,
    work: Workload,
    model_config: PreTrainedConfig,
    *,
    model_bytes: int,
    memory: int | None,
    progress: Callable[[str, int, int], None] | None,
) -> tuple[PlannedPhase, ...]:
    """Measure every phase on a fake model."""
    phases: list[PlannedPhase] = []
    for place, phase in enumerate(PHASES.values()):
        if progress is not None:
            progress(phase.name, place, len(PHASES))
        with _errors_as_input_errors(model_config, fake):
            found = measure_phase(phase, fake, work)
            peak = model_bytes + found.kept + found.step
            planned = PlannedPhase(phase.name, found.kept, found.step, peak)
            if memory is not None:
                advice = advise(phase, fake, work, found, left=memory - model_bytes)
                planned = replace(planned, fits=peak <= memory, advice=advice)
        phases.append(planned)
    return tuple(phases)


def advise(phase: Phase, fake: FakeModel, work: Workload, found: PhaseMemory, *, left: int) -> str:
    """Name the setting to lower so that a phase fits; empty if it fits.

    Args:
        phase: The phase.
        fake: The model.
        work: Rows, tokens and coordinates that go through it.
        found: Memory that this takes.
        left: Bytes beside the model; negative if the model itself does not fit.
    """
    if found.kept + found.step <= left:
        return ""
    wide = next(iter(fake.parameters.values())).dtype == torch.float32
    smaller = "take --dtype bfloat16" if wide else "take a smaller model"
    other = f", or {phase.instead}" if phase.instead else ""
    if left < 0:
        return f"the model alone is {readable_bytes(-left)} too large: {smaller}"
    if found.kept > left:
        over = readable_bytes(found.kept - left)
        return f"what it keeps beside the model is {over} too much: {smaller}{other}"
    option = f"--{phase.rows.replace('_', '-')}"
    rows = _rows(phase, work) // 2
    while rows:
        fewer = measure_phase(phase, fake, replace(work, **{phase.rows: rows}))
        if fewer.kept + fewer.step <= left:
            return f"{option} {rows} fits"
        rows //= 2
    ways = [f"{option} 1", "a smaller --max-length"]
    if phase.rows == "micro_batch" and not fake.model.recomputes:
        ways.append("--gradient-checkpointing")
    if wide:
        ways.append("--dtype bfloat16")
    return f"lower what a step needs: {', '.join(ways)}{other}"


def _longest_answer(config: ExperimentConfig, length: int) -> int:
    """Return the tokens of the longest answer in free text; 0 where no task is of that kind."""
    texts = [own for own in config.stream.task_settings.values() if own.kind == Text2Text.name]
    longest = [(own.decoding or {}).get("longest_answer") or length // 2 for own in texts]
    return max(longest, default=0)


def _rows(phase: Phase, work: Workload) -> int:
    """Return how many rows a phase computes at a time."""
    if phase.rows == "eval_batch":
        return work.eval_batch
    if phase.localizes:
        return work.localized
    return min(work.batch_size, work.micro_batch or work.batch_size)


def _check_length(model: TaskModel, length: int) -> None:
    """Raise an InputError if the model has fewer positions than a row has tokens."""
    most = longest_row(model)
    if most is not None and length > most:
        raise InputError(
            f"max_length must be at most {most}, the positions of {model.name!r}, got {length}"
        )


@contextmanager
def _errors_as_input_errors(config: PreTrainedConfig, fake: FakeModel) -> Iterator[None]:
    """Turn what an architecture cannot do without numbers into an InputError."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    except RuntimeError as error:
        raise InputError(
            f"{fake.model.name!r} ({config.model_type}) cannot be planned: its computation "
            f"depends on numbers that a config does not hold ({first_line(error)})"
        ) from error
    finally:
        logger.setLevel(level)


def _count(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() for tensor in tensors)
