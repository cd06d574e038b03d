"""What learning tasks with a model will take, from its config alone: no weights, no data."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from torch import Tensor

from cl_graft.errors import InputError, first_line
from cl_graft.experiments.memory_estimate.advice import advise
from cl_graft.experiments.memory_estimate.disk import EntryBytes, entry_bytes
from cl_graft.experiments.memory_estimate.phases import PHASES, PhaseMemory, Workload, measure_phase
from cl_graft.experiments.memory_estimate.weightless_model import HollowModel, hollow_model
from cl_graft.models.load import DTYPES, check_types, read_config

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

__all__ = ["Plan", "PlanSettings", "PlannedPhase", "make_plan"]


@dataclass(frozen=True, kw_only=True)
class PlanSettings:
    """What to plan for.

    Attributes:
        family: As in `load_model`.
        pooling: As in `load_model`.
        dtype: The parameters' type: ``"float32"``, ``"bfloat16"`` or ``"float16"``.
        precision: What fp32 parameters compute in: ``"fp32"``, ``"bf16"`` or ``"fp16"``.
        batch_size: Rows a training step.
        micro_batch: Rows computed at a time in training and localization; None for a batch at
            once, and 32 in localization.
        eval_batch: Rows an evaluation batch.
        max_length: Tokens a row, at least 2.
        classes: Classes of a task.
        density: Share of the graftable coordinates in a task's region, in (0, 1].
        mask_candidates: Candidates of a mask on candidates, in multiples of the region's size.
        budget: Share of the graftable coordinates that all tasks together may own, in (0, 1].
        gradient_checkpointing: Compute activations again in the backward pass.
        trust_remote_code: As in `load_model`.
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
        name: The phase.
        kept: Beside the model, from step to step.
        step: On top, in the fullest moment.
        peak: Model, kept and step together: what the process needs above its imports.
        fits: Whether that is within the memory given; None if none was.
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
        model: The model's name.
        settings: What was planned for.
        parameters: Of the model, without heads.
        model_bytes: Its parameters and buffers in memory.
        graftable: Coordinates that a region may hold.
        graftable_tensors: Parameters that they lie in.
        region: Coordinates of a task's region.
        tasks: How many tasks fill the budget, each owning a whole region.
        entry: The file of a task's entry.
        entry_total: All of that file.
        serving: Bytes in memory a task of a bank that is being served: coordinates, values, and
            the base's values there.
        phases: Memory of each phase.
        memory: The memory given; None if none was.
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
        settings: What to plan for.
        memory: Bytes that there are.
        progress: Called as (phase, step, steps).

    Raises:
        InputError: If there is no such model, or it is none that cl_graft can graft.
    """
    config = read_config(name, family=settings.family, trust_remote_code=settings.trust_remote_code)
    hollow = hollow_model(
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
    _check(config, hollow, settings)
    graftable = hollow.parameters
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
    head = hollow.model.heads["0"]
    entry = entry_bytes(hollow.model, head, size=region, length=settings.max_length)
    backbone = hollow.model.backbone
    model_bytes = _bytes([*backbone.parameters(), *backbone.buffers()])
    phases: list[PlannedPhase] = []
    known: dict[str, PhaseMemory] = {}
    for place, phase in enumerate(PHASES.values()):
        if progress is not None:
            progress(phase.name, place, len(PHASES))
        with _told(config, hollow):
            found = known[phase.name] = measure_phase(phase, hollow, work, known=known)
        planned = PlannedPhase(
            phase.name, found.kept, found.step, model_bytes + found.kept + found.step
        )
        if memory is not None:
            with _told(config, hollow):
                advice = advise(phase, hollow, work, found, left=memory - model_bytes)
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


def _check(config: PreTrainedConfig, hollow: HollowModel, settings: PlanSettings) -> None:
    """Raise an InputError if the model cannot do what is asked."""
    positions = getattr(config, "max_position_embeddings", None)
    if isinstance(positions, int) and settings.max_length > positions:
        raise InputError(
            f"max_length must be at most {positions}, the positions of {hollow.model.name!r}, "
            f"got {settings.max_length}"
        )


@contextmanager
def _told(config: PreTrainedConfig, hollow: HollowModel) -> Iterator[None]:
    """Turn what an architecture cannot do without numbers into an InputError."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    except RuntimeError as error:
        raise InputError(
            f"{hollow.model.name!r} ({config.model_type}) cannot be planned: its computation "
            f"depends on numbers that a config does not hold ({first_line(error)})"
        ) from error
    finally:
        logger.setLevel(level)


def _count(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() for tensor in tensors)


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
