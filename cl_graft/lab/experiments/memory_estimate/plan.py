"""The plan of learning tasks with a model: memory and bytes on disk, from a config alone."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn

from cl_graft.errors import InputError, first_line
from cl_graft.grafts.bank import BaseIdentity, Entry, GraftBank, RecordedBatch
from cl_graft.grafts.graft import Graft
from cl_graft.grafts.hashing import environment
from cl_graft.grafts.region import Layout, Region
from cl_graft.kinds.text2text import Text2Text
from cl_graft.lab.experiments.memory_estimate.fake_model import FakeModel, make_fake_model
from cl_graft.lab.experiments.memory_estimate.tracked_steps import (
    PlannedPhase,
    track_dense_run,
    track_gradients,
    track_region,
)
from cl_graft.localization import find_localizer
from cl_graft.localization.region_search import allowed_coordinates
from cl_graft.models import TaskModel, graftable_parameters, longest_row
from cl_graft.models.load import read_config
from cl_graft.models.text_generation import TextHead
from cl_graft.settings import ExperimentConfig
from cl_graft.storage.elias_fano import packed_size
from cl_graft.storage.graft_file import pack_entry

_RECORDED_ROWS = 8
_METADATA = {"about as long as those of a learned task": "-" * 590}


@dataclass(frozen=True)
class EntryBytes:
    """The file of a task's entry in a bank, in bytes.

    Attributes:
        indices: Bytes of the region's coordinates, 2 + log2(1 / density) bits each at most.
        values: Bytes of the region's values, in the model's type.
        head: Bytes of the task's head, fp32; 0 for prompts.
        recorded_batch: Bytes of the recorded batch and its logits.
        rest: Bytes of names, hashes and metadata.
    """

    indices: int
    values: int
    head: int
    recorded_batch: int
    rest: int

    @property
    def total(self) -> int:
        """Bytes of the whole file."""
        return self.indices + self.values + self.head + self.recorded_batch + self.rest


@dataclass(frozen=True)
class Plan:
    """Memory and disk that learning tasks with a model will take.

    Attributes:
        model: Name of the model.
        batch_size: Rows of a training step.
        max_length: Tokens a row.
        answer_tokens: Tokens of an answer in free text; 0 where tasks have classes.
        parameters: Number of the model's parameters, without heads.
        model_bytes: Bytes of its parameters and buffers in memory.
        graftable: Number of coordinates that a region may hold.
        graftable_tensors: Number of parameters that they lie in.
        region: Number of coordinates of a task's region.
        tasks: Number of tasks that own all coordinates, each owning a whole region.
        entry: Bytes of the file of a task's entry, by part.
        entry_total: Bytes of the whole file.
        serving: Bytes in memory a task of a bank that is being served: coordinates, values, and
            the base's values there.
        phases: Memory of the phases in which grafting learns a task.
    """

    model: str
    batch_size: int
    max_length: int
    answer_tokens: int
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


def make_plan(
    config: ExperimentConfig, *, classes: int | None = None, answer_tokens: int | None = None
) -> Plan:
    """Predict what learning tasks with the model of a config will take.

    No data and no weights are read: of the model's files only `config.json`. The density ``"auto"``
    is planned as the largest that it tries, and upper `layers` as the whole model.

    Args:
        config: Settings to plan for.
        classes: Classes of a task; None takes as many as the config names labels, and 2 where it
            names none.
        answer_tokens: Tokens of the longest answer of a task of free text, its end included. None
            takes the longest of the config's tasks of the kind text2text: as their settings say,
            else half of `max_length`, the most that a run takes; without such tasks, the tasks have
            classes.

    Raises:
        InputError: If the config does not say how long rows are, a number is out of range, answers
            are asked of a model that writes none, there is no such model, or it is none that
            cl_graft can graft.
    """
    settings, grafting, length = config.model, config.grafting, config.stream.max_length
    if length is None:
        raise InputError("the config leaves max_length to the tasks: say it with --max-length")
    tasks = config.stream.task_settings.values()
    if classes is None:
        classes = max([2, *(len(own.label_names or ()) for own in tasks)])
    if classes < 1:
        raise InputError(f"classes must be at least 1, got {classes}")
    texts = [own.decoding or {} for own in tasks if own.kind == Text2Text.name]
    longest = max((own.get("longest_answer") or length // 2 for own in texts), default=0)
    answer = longest if answer_tokens is None else answer_tokens
    if not 0 <= answer < length:
        raise InputError(
            f"answers need 1 to {length - 1} of the {length} tokens of max_length, got {answer}"
        )
    model_config = read_config(
        settings.name, family=settings.family, trust_remote_code=settings.trust_remote_code
    )
    fake = make_fake_model(model_config, settings, classes=classes, answer=answer)
    most = longest_row(fake.model)
    if most is not None and length > most:
        raise InputError(
            f"max_length must be at most {most}, the positions of {settings.name!r}, got {length}"
        )
    graftable = fake.parameters
    allowed_coordinates(fake.model, graftable, localizer=grafting.localizer, layers=grafting.layers)
    total = sum(tensor.numel() for tensor in graftable.values())
    region = grafting.coordinates(total)
    entry = entry_bytes(fake.model, fake.model.heads["0"], size=region, length=length)
    with _errors_as_input_errors(f"{settings.name!r} ({model_config.model_type})"):
        phases = tuple(_track_phases(config, fake, length=length, region=region))
    return Plan(
        model=settings.name,
        batch_size=config.fine_tuning.batch_size,
        max_length=length,
        answer_tokens=answer,
        parameters=sum(tensor.numel() for tensor in fake.model.backbone.parameters()),
        model_bytes=fake.backbone_bytes,
        graftable=total,
        graftable_tensors=len(graftable),
        region=region,
        tasks=total // region,
        entry=entry,
        entry_total=entry.total,
        serving=region * (8 + 2 * next(iter(graftable.values())).element_size()),
        phases=phases,
    )


def _track_phases(
    config: ExperimentConfig, fake: FakeModel, *, length: int, region: int
) -> Iterator[PlannedPhase]:
    """Yield the memory of the phases in which grafting learns a task, in their order."""
    dense, localizer = config.fine_tuning, find_localizer(config.grafting.localizer)
    if localizer.needs_dense_run:
        yield track_dense_run(fake, dense, length=length, path=localizer.needs_path)
    grafting = config.grafting.of_task(dense, seed=0)
    yield track_gradients(fake, grafting, length=length)
    if grafting.retrain:
        schedule = config.region_schedule(dense, coordinates=region)
        yield track_region(fake, schedule, length=length, coordinates=region)


@contextmanager
def _errors_as_input_errors(model: str) -> Iterator[None]:
    """Turn what an architecture cannot do without numbers into an InputError."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    except RuntimeError as error:
        raise InputError(
            f"{model} cannot be planned: its computation depends on numbers that a config does not "
            f"hold ({first_line(error)})"
        ) from error
    finally:
        logger.setLevel(level)


def entry_bytes(model: TaskModel, head: nn.Module, *, size: int, length: int) -> EntryBytes:
    """Return what the entry of a region of `size` coordinates, all owned, takes on disk.

    An entry of one coordinate is packed, and the other coordinates are added as the file format
    stores them. The model may be one of fake tensors; `length` is the number of tokens a row.
    """
    parameters = graftable_parameters(model)
    layout = Layout.of(parameters)
    dtype = next(iter(parameters.values())).dtype
    vocabulary = getattr(model.text_config, "vocab_size", 2)
    classes = _count_recorded(head)
    inputs = torch.ones(_RECORDED_ROWS, 2, length, dtype=torch.int64)
    inputs[:, 0] = vocabulary - 1
    state = {name: torch.zeros(t.shape, dtype=t.dtype) for name, t in head.state_dict().items()}
    entry = Entry(
        task="sentiment",
        label=0,
        owned=Graft(Region.of(layout, [0]), torch.zeros(1, dtype=dtype)),
        owned_before=Region.empty(layout),
        head=state,
        weights_sha256="0" * 64,
        recorded_batch=RecordedBatch(inputs, torch.zeros(_RECORDED_ROWS, classes), environment()),
        metadata=_METADATA,
    )
    base = BaseIdentity("0" * 64, model.name, str(dtype).removeprefix("torch."))
    written = len(pack_entry(entry, GraftBank(layout, base)))
    head_bytes = sum(t.nbytes for t in state.values())
    token_bytes = 2 if vocabulary <= 2**16 else 4
    batch_bytes = _RECORDED_ROWS * (length * (token_bytes + 1) + 4 * classes)
    coordinate_bytes = packed_size(1, layout.total) + dtype.itemsize
    return EntryBytes(
        indices=packed_size(size, layout.total),
        values=size * dtype.itemsize,
        head=head_bytes,
        recorded_batch=batch_bytes,
        rest=written - coordinate_bytes - head_bytes - batch_bytes,
    )


def _count_recorded(head: nn.Module) -> int:
    """Return how many values of a row an entry records: a logit a class, or a decoded answer."""
    if isinstance(head, TextHead):
        return 2 * head.longest
    return head.out_features if isinstance(head, nn.Linear) else len(head.get_buffer("token_ids"))
