"""Plans: what learning tasks with a model will take, from its config alone.

They stand apart from the phases because they add what the phases do not know: the disk, the memory
there is, and what to lower where a phase does not fit.
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
from cl_graft.experiments.memory_estimate.disk import EntryBytes, entry_bytes
from cl_graft.experiments.memory_estimate.fake_model import FakeModel, make_fake_model
from cl_graft.experiments.memory_estimate.phases import (
    PHASES,
    Phase,
    PhaseMemory,
    Workload,
    measure_phase,
)
from cl_graft.models.load import DTYPES, check_types, read_config
from cl_graft.runtime.byte_sizes import readable_bytes

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

__all__ = ["Plan", "PlanSettings", "PlannedPhase", "advise", "make_plan"]


@dataclass(frozen=True, kw_only=True)
class PlanSettings:
    """Model, batch sizes and regions to plan for.

    Attributes:
        family: Family of the model, as in `load_model`.
        pooling: Pooling of an encoder, as in `load_model`.
        dtype: Type of the parameters: ``"float32"``, ``"bfloat16"`` or ``"float16"``.
        precision: Precision in which fp32 parameters compute: ``"fp32"``, ``"bf16"`` or ``"fp16"``.
        batch_size: Rows a training step.
        micro_batch: Rows computed at a time in training and localization; None for a batch at
            once, and 32 in localization.
        eval_batch: Rows an evaluation batch.
        max_length: Tokens a row, at least 2.
        classes: Classes of a task.
        density: Share of the graftable coordinates in a task's region, in (0, 1].
        mask_candidates: Candidates of a mask on candidates, in multiples of the region's size.
        budget: Share of the graftable coordinates that all tasks together may own, in (0, 1].
        gradient_checkpointing: Whether activations are computed again in the backward pass.
        trust_remote_code: Whether code of the model's repository may run, as in `load_model`.
    """

    family: str = "encoder"
    pooling: str = "mean"
    dtype: str = "float32"
    precision: str = "fp32"
    batch_size: int = 8
    micro_batch: int | None = None
    eval_batch: int = 64
    max_length: int = 64
    classes: int = 2
    density: float = 0.002
    mask_candidates: int = 20
    budget: float = 1.0
    gradient_checkpointing: bool = False
    trust_remote_code: bool = False

    def __post_init__(self) -> None:
        check_types(self.dtype, self.precision)
        for name in ("density", "budget"):
            if not 0 < getattr(self, name) <= 1:
                raise InputError(f"{name} must be in (0, 1], got {getattr(self, name)}")
        least = {"max_length": 2, "batch_size": 1, "eval_batch": 1}
        for name, low in {**least, "classes": 1, "mask_candidates": 1}.items():
            if getattr(self, name) < low:
                raise InputError(f"{name} must be at least {low}, got {getattr(self, name)}")
        if self.micro_batch is not None and self.micro_batch < 1:
            raise InputError(f"micro_batch must be at least 1, got {self.micro_batch}")


@dataclass(frozen=True)
class PlannedPhase:
    """Memory of a phase, in bytes.

    Attributes:
        name: Name of the phase.
        kept: Bytes beside the model, from step to step.
        step: Bytes on top, in the fullest moment.
        peak: Sum of model, kept and step: what the process needs above its imports.
        fits: Whether the peak is within the memory given; None if none was given.
        advice: What to lower where it does not fit.
    """

    name: str
    kept: int
    step: int
    peak: int
    fits: bool | None = None
    advice: str = ""


@dataclass(frozen=True)
class Plan:
    """What learning tasks with a model will take.

    Attributes:
        model: Name of the model.
        settings: Settings that were planned for.
        parameters: Number of the model's parameters, without heads.
        model_bytes: Bytes of its parameters and buffers in memory.
        graftable: Number of coordinates that a region may hold.
        graftable_tensors: Number of parameters that they lie in.
        region: Number of coordinates of a task's region.
        tasks: Number of tasks that fill the budget, each owning a whole region.
        entry: Bytes of the file of a task's entry, by part.
        entry_total: Bytes of all of that file.
        serving: Bytes in memory a task of a bank that is being served: coordinates, values, and
            the base's values there.
        phases: Memory of each phase.
        memory: Bytes of memory given; None if none was given.
    """

    model: str
    settings: PlanSettings
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


def make_plan(
    name: str,
    settings: PlanSettings,
    *,
    memory: int | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Plan:
    """Predict what learning tasks with a model will take.

    Args:
        name: A model as in `load_model`; of its files only `config.json` is read.
        settings: Settings to plan for.
        memory: Bytes that there are.
        progress: Called as (phase, step, steps).

    Raises:
        InputError: If there is no such model, or it is none that cl_graft can graft.
    """
    config = read_config(name, family=settings.family, trust_remote_code=settings.trust_remote_code)
    fake = make_fake_model(
        config,
        name=name,
        family=settings.family,
        pooling=settings.pooling,
        dtype=DTYPES[settings.dtype],
        classes=settings.classes,
        precision=settings.precision,
        recompute=settings.gradient_checkpointing,
        trust_remote_code=settings.trust_remote_code,
    )
    _check_length(config, fake, settings)
    graftable = fake.parameters
    total = _count(graftable.values())
    region = max(1, round(settings.density * total))
    work = Workload(
        batch_size=settings.batch_size,
        micro_batch=settings.micro_batch,
        eval_batch=settings.eval_batch,
        length=settings.max_length,
        region=region,
        candidates=min(total, region * settings.mask_candidates),
    )
    head = fake.model.heads["0"]
    entry = entry_bytes(fake.model, head, size=region, length=settings.max_length)
    backbone = fake.model.backbone
    model_bytes = _bytes([*backbone.parameters(), *backbone.buffers()])
    phases: list[PlannedPhase] = []
    for place, phase in enumerate(PHASES.values()):
        if progress is not None:
            progress(phase.name, place, len(PHASES))
        with _errors_as_input_errors(config, fake):
            found = measure_phase(phase, fake, work)
            planned = PlannedPhase(
                phase.name, found.kept, found.step, model_bytes + found.kept + found.step
            )
            if memory is not None:
                advice = advise(phase, fake, work, found, left=memory - model_bytes)
                planned = replace(planned, fits=planned.peak <= memory, advice=advice)
        phases.append(planned)
    values = next(iter(graftable.values())).element_size()
    return Plan(
        model=name,
        settings=settings,
        parameters=_count(backbone.parameters()),
        model_bytes=model_bytes,
        graftable=total,
        graftable_tensors=len(graftable),
        region=region,
        tasks=int(settings.budget * total) // region,
        entry=entry,
        entry_total=entry.total,
        serving=region * (8 + 2 * values),
        phases=tuple(phases),
        memory=memory,
    )


def advise(phase: Phase, fake: FakeModel, work: Workload, found: PhaseMemory, *, left: int) -> str:
    """Say what to lower so that a phase fits, or nothing if it does.

    Args:
        phase: The phase.
        fake: The model.
        work: Rows, tokens and coordinates that go through it.
        found: Memory that this takes.
        left: Bytes that the model leaves; negative if it does not fit itself.
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


def _rows(phase: Phase, work: Workload) -> int:
    """Return how many rows a phase computes at a time."""
    if phase.rows == "eval_batch":
        return work.eval_batch
    if phase.localizes:
        return work.localized
    return min(work.batch_size, work.micro_batch or work.batch_size)


def _check_length(config: PreTrainedConfig, fake: FakeModel, settings: PlanSettings) -> None:
    """Raise an InputError if the model has fewer positions than a row has tokens."""
    positions = getattr(config, "max_position_embeddings", None)
    if isinstance(positions, int) and settings.max_length > positions:
        raise InputError(
            f"max_length must be at most {positions}, the positions of {fake.model.name!r}, "
            f"got {settings.max_length}"
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


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
