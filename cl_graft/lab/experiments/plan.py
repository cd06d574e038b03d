"""The plan of learning tasks with a model: memory and bytes on disk, from a config alone.

The code of each phase runs on fake tensors while a tracker counts bytes, for as few steps as reach
its fullest moment. The work space inside an operation is not seen.
"""

from __future__ import annotations

import inspect
import logging
import math
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import TensorDataset

from cl_graft.errors import InputError, first_line
from cl_graft.grafts.bank import BaseIdentity, Entry, GraftBank, RecordedBatch
from cl_graft.grafts.graft import Graft, snapshot
from cl_graft.grafts.hashing import environment
from cl_graft.grafts.model_state import preserve_requires_grad
from cl_graft.grafts.region import Layout, Region
from cl_graft.kinds.text2text import Text2Text
from cl_graft.localization import find_localizer
from cl_graft.localization.grafting_settings import GraftingSettings
from cl_graft.localization.inputs_of_task import RowCounter, inputs_of_task
from cl_graft.localization.localizer_inputs import add_gradient_
from cl_graft.localization.reach import find_reach
from cl_graft.metrics import task_loss
from cl_graft.models import TaskModel, graftable_parameters, longest_row
from cl_graft.models.heads import LabelStrings, LabelWords
from cl_graft.models.load import DTYPES, build_backbone, read_config
from cl_graft.models.task_model import WRITING
from cl_graft.models.text_generation import ANSWER, TextHead
from cl_graft.settings import ExperimentConfig
from cl_graft.settings.parts import ModelSettings
from cl_graft.storage.elias_fano import packed_size
from cl_graft.storage.graft_file import pack_entry
from cl_graft.storage.matrix_lines import largest_index
from cl_graft.storage.serialization import DRAWN_BYTES
from cl_graft.training.dense_run import DenseRun, fine_tune_task
from cl_graft.training.examples import Examples
from cl_graft.training.fine_tuning_settings import FineTuning
from cl_graft.training.graft_retraining import train_region
from cl_graft.training.learnable_task import LearnableTask, Passes

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

_MASK = 1


@dataclass(frozen=True, eq=False)
class FakeModel:
    """A model of fake tensors with the head of one task, of label 0."""

    model: TaskModel
    mode: FakeTensorMode

    @property
    def parameters(self) -> dict[str, nn.Parameter]:
        """The graftable parameters by name."""
        return graftable_parameters(self.model)

    @property
    def total(self) -> int:
        """The number of graftable coordinates."""
        return sum(parameter.numel() for parameter in self.parameters.values())

    @property
    def backbone_bytes(self) -> int:
        """Bytes of the parameters and buffers of the model without its head."""
        backbone = self.model.backbone
        return sum(tensor.nbytes for tensor in (*backbone.parameters(), *backbone.buffers()))

    def task(self, *, length: int, train: int, dev: int) -> LearnableTask:
        """Return a task of so many texts of `length` tokens, whose ids are real tensors."""
        head = self.model.heads["0"].named_parameters()
        return LearnableTask(
            model=self.model,
            parameters=self.parameters,
            head={f"heads.0.{name}": parameter for name, parameter in head},
            forward=lambda batch: self.model(batch, 0),
            criterion=task_loss,
            score=lambda logits, targets: 1.0,
            train=self.texts(train, length),
            dev=self.texts(dev, length),
            device=torch.device("cpu"),
            content="",
            precision=self.model.precision,
            recomputes=self.model.recomputes,
        )

    def region(self, size: int) -> SpreadRegion:
        """Return a region of `size` coordinates."""
        with self.mode:
            index = torch.empty(size, dtype=torch.int64)
        return SpreadRegion(Layout.of(self.parameters), index)

    def texts(self, rows: int, length: int) -> Examples:
        """Return texts, with their answers where they are in free text."""
        inputs = torch.ones(rows, 2, length, dtype=torch.int64)
        targets = torch.zeros(rows, dtype=torch.int64)
        if self.model.family == "masked_lm":
            inputs[:, 0] += _MASK
            inputs[:, 0, 0] = _MASK
        if isinstance(head := self.model.heads["0"], TextHead):
            inputs[:, 1, -head.longest :] = ANSWER
            targets = torch.zeros(rows, head.longest, dtype=torch.int64)
        return Examples(TensorDataset(inputs, targets))


class SpreadRegion(Region):
    """A region of a fake model: how many coordinates lie in each parameter, and not where.

    They are spread over the graftable parameters in proportion to their sizes. Regions that
    localizers find crowd together more and keep less of the activations.
    """

    def __post_init__(self) -> None:
        """Skip the checks of coordinate numbers, which fake tensors do not have."""

    def by_parameter(self) -> Iterator[tuple[str, Tensor, slice]]:
        """Walk the parameters that the region touches, as `Region.by_parameter`."""
        last, total = 0, self.layout.total
        for name, end in zip(self.layout.names, self.layout.starts[1:], strict=True):
            first, last = last, len(self) * end // total
            if last > first:
                cut = slice(first, last)
                yield name, self.index[cut].clone(), cut


def make_fake_model(
    config: PreTrainedConfig, settings: ModelSettings, *, classes: int = 2, answer: int = 0
) -> FakeModel:
    """Make a model and the head of a task, of so many classes or of answers of so many tokens.

    Raises:
        InputError: If the architecture cannot serve the family, takes no token ids, or has no
            gradient checkpointing, or the family writes no text.
    """
    from transformers.initialization import no_init_weights

    name, family = settings.name, settings.family
    if answer and family not in WRITING:
        raise InputError(
            f"a model of the family {family!r} writes no text: answers need one of {list(WRITING)}"
        )
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode:
        with no_init_weights():  # some ways of drawing weights look at what they drew
            backbone = build_backbone(
                config,
                name=name,
                family=family,
                dtype=DTYPES[settings.dtype],
                trust_remote_code=settings.trust_remote_code,
            )
        backbone.tie_weights()
        if "input_ids" not in inspect.signature(backbone.forward).parameters:
            kind = config.model_type
            raise InputError(f"{name!r} ({kind}) takes no token ids, so it is no text model")
        model = TaskModel(
            backbone,
            family=family,
            pooling=settings.pooling,
            mask_token_id=_MASK,
            name=name,
            precision=settings.precision,
        )
        if not answer:
            model.heads["0"] = _head(model, classes)  # nothing to move, as add_head would
    if answer:
        model.heads["0"] = TextHead([0], answer)  # it is read, so its numbers are real
    if settings.gradient_checkpointing:
        model.recompute_()
    _make_inputs_fake(backbone, mode)
    return FakeModel(model.eval(), mode)


def _head(model: TaskModel, classes: int) -> nn.Module:
    if model.family == "encoder":
        return nn.Linear(model.hidden_size, classes, dtype=torch.float32)
    words = range(2, 2 + classes)
    if model.family == "masked_lm":
        return LabelWords(words)
    return LabelStrings([[word] for word in words])


def _make_inputs_fake(backbone: Any, mode: FakeTensorMode) -> None:
    """Let a forward pass of the backbone take and create fake tensors only."""
    forward = backbone.forward

    def fake_forward(**inputs: Any) -> Any:
        with mode:
            fake = {
                name: mode.from_tensor(value) if isinstance(value, Tensor) else value
                for name, value in inputs.items()
            }
            return forward(**fake)

    backbone.forward = fake_forward


_RECORDED_ROWS = 8
_METADATA = {"about as long as those of a learned task": "-" * 590}

_READ = torch.ops.aten._local_scalar_dense.default

_DEV_ROWS = 64
"""Rows of a batch when a phase evaluates on dev."""


@dataclass(frozen=True)
class PlannedPhase:
    """Memory of a phase, in bytes.

    Attributes:
        name: Name of the phase.
        kept: Bytes beside the model that live from step to step: copies of the weights, the
            optimizer's state, scores, the region.
        step: Bytes on top in the fullest moment: activations, gradients, work space.
        peak: Sum of model, kept and step: what the process needs above its imports.
    """

    name: str
    kept: int
    step: int
    peak: int


@dataclass(frozen=True)
class EntryBytes:
    """The file of a task's entry in a bank, in bytes.

    Attributes:
        indices: Bytes of the region's coordinates, 2 + log2(1 / density) bits each at most, or 4
            bytes a column or row.
        values: Bytes of the region's values, in the model's type.
        head: Bytes of the task's head, fp32; 0 for prompts.
        rest: Bytes of the recorded batch and its logits, names, hashes and metadata.
    """

    indices: int
    values: int
    head: int
    rest: int

    @property
    def total(self) -> int:
        """Bytes of the whole file."""
        return self.indices + self.values + self.head + self.rest


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
        region: Number of coordinates of a task's region, whole units of them for columns.
        tasks: Number of such regions that fit beside each other in what the settings leave.
        entry: Bytes of the file of a task's entry, by part.
        entry_total: Bytes of the whole file.
        phases: Memory of the phases in which grafting learns a task.
    """

    model: str
    batch_size: int
    max_length: int
    answer_tokens: int
    parameters: int
    model_bytes: int
    graftable: int
    region: int
    tasks: int
    entry: EntryBytes
    entry_total: int
    phases: tuple[PlannedPhase, ...]


def make_plan(config: ExperimentConfig) -> Plan:
    """Predict what learning tasks with the model of a config will take.

    No data and no weights are read: of the model's files only `config.json`. Upper `layers` are
    planned as the whole model. Tasks have as many classes as the config names labels, and 2 where
    it names none. With a task of the kind text2text, answers are as long as its settings say, else
    half of `max_length`, the most that a run takes. The entry is that of the first task.

    Raises:
        InputError: If the config does not say how long rows are, a number is out of range, answers
            are asked of a model that writes none, there is no such model, or it is none that
            cl_graft can graft.
    """
    settings, grafting, length = config.model, config.grafting, config.stream.max_length
    if length is None:
        raise InputError("the config leaves max_length to the tasks: say it with --max-length")
    tasks = config.stream.task_settings.values()
    classes = max([2, *(len(task.label_names or ()) for task in tasks)])
    texts = [task.decoding or {} for task in tasks if task.kind == Text2Text.name]
    answer = max((task.get("longest_answer") or length // 2 for task in texts), default=0)
    if answer >= length:
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
    reach = find_reach(fake.model, fake.parameters, grafting)
    stored_as, budget = find_storage(grafting), grafting.coordinates(fake.total)
    none = Region.empty(reach.layout)
    region = sum(reach.divide(budget, owned=none))
    entry = entry_bytes(
        fake.model, fake.model.heads["0"], size=region, length=length, stored_as=stored_as
    )
    with _errors_as_input_errors(f"{settings.name!r} ({model_config.model_type})"):
        phases = tuple(_track_phases(config, fake, length=length, region=region))
    return Plan(
        model=settings.name,
        batch_size=config.fine_tuning.batch_size,
        max_length=length,
        answer_tokens=answer,
        parameters=sum(tensor.numel() for tensor in fake.model.backbone.parameters()),
        model_bytes=fake.backbone_bytes,
        graftable=fake.total,
        region=region,
        tasks=reach.count_regions(budget, owned=none),
        entry=entry,
        entry_total=entry.total,
        phases=phases,
    )


def find_storage(settings: GraftingSettings) -> str:
    """Return `Localizer.stored_as`, but ``"index"`` for draws from a part of the model."""
    stored_as = find_localizer(settings.localizer).stored_as
    whole = settings.layers == settings.modules == "all"
    return "index" if stored_as == "seed" and not whole else stored_as


def entry_bytes(
    model: TaskModel, head: nn.Module, *, size: int, length: int, stored_as: str, owned: int = 0
) -> EntryBytes:
    """Return what the entry of a region of `size` coordinates, all owned, takes on disk.

    An entry of one coordinate is packed, and the other coordinates are added as the file format
    stores them (`Localizer.stored_as`), where earlier tasks own `owned` coordinates. The model may
    be one of fake tensors; `length` is the number of tokens a row.
    """
    parameters = graftable_parameters(model)
    layout = Layout.of(parameters)
    dtype = next(iter(parameters.values())).dtype
    inputs = torch.ones(_RECORDED_ROWS, 2, length, dtype=torch.int64)
    inputs[:, 0] = getattr(model.text_config, "vocab_size", 2) - 1
    state = {name: torch.zeros(t.shape, dtype=t.dtype) for name, t in head.state_dict().items()}
    logits = torch.zeros(_RECORDED_ROWS, _count_recorded(head))
    entry = Entry(
        task="sentiment",
        label=0,
        owned=Graft(Region.of(layout, [0]), torch.zeros(1, dtype=dtype)),
        owned_before=Region.empty(layout),
        head=state,
        weights_sha256="0" * 64,
        recorded_batch=RecordedBatch(inputs, logits, environment()),
        metadata=_METADATA,
    )
    base = BaseIdentity("0" * 64, model.name, str(dtype).removeprefix("torch."))
    written = len(pack_entry(entry, GraftBank(layout, base)))
    head_bytes = sum(t.nbytes for t in state.values())
    indices = packed_size(size, layout.total)
    if stored_as == "lines":
        indices = largest_index(size, layout)
    elif stored_as == "seed":
        passed_over = size * owned // max(1, layout.total - owned)
        passed_over += 4 * math.isqrt(passed_over)  # as draws scatter
        indices = min(indices, packed_size(passed_over, size + passed_over) + DRAWN_BYTES)
    return EntryBytes(
        indices=indices,
        values=size * dtype.itemsize,
        head=head_bytes,
        rest=written - packed_size(1, layout.total) - dtype.itemsize - head_bytes,
    )


def _count_recorded(head: nn.Module) -> int:
    """Return how many values of a row an entry records: a logit a class, or a decoded answer."""
    if isinstance(head, TextHead):
        return 2 * head.longest
    return head.out_features if isinstance(head, nn.Linear) else len(head.get_buffer("token_ids"))


def _track_phases(
    config: ExperimentConfig, fake: FakeModel, *, length: int, region: int
) -> Iterator[PlannedPhase]:
    dense, localizer = config.fine_tuning, find_localizer(config.grafting.localizer)
    grafting = config.grafting.of_task(dense, seed=0)
    if localizer.needs_dense_run:
        yield track_dense_run(fake, grafting.fine_tuning, length=length, path=localizer.needs_path)
    yield track_localization(fake, grafting, length=length)
    if grafting.retrain:
        # Fake weights have no scale, and the rate costs nothing.
        schedule = config.region_schedule(dense, coordinates=region, scale=1.0)
        yield track_region(fake, schedule, length=length, coordinates=region)


def track_dense_run(
    fake: FakeModel, settings: FineTuning, *, length: int, path: bool = False
) -> PlannedPhase:
    """Track two steps of a dense run on rows of `length` tokens, with evaluations on dev.

    With `path` the path integral is summed up.
    """
    short = _two_steps(settings)

    def train(task: LearnableTask) -> None:
        fine_tune_task(task, short, seed=0, path=path)

    return _track("dense run", fake, train, rows=short.batch_size, length=length)


def track_localization(fake: FakeModel, settings: GraftingSettings, *, length: int) -> PlannedPhase:
    """Track the gradients of one micro-batch, beside the tuned weights and a score a coordinate.

    With candidates, scores are of these alone. The selection of coordinates is not tracked.
    """
    localizer, rows = find_localizer(settings.localizer), settings.rows_at_once
    total = fake.total
    k = settings.coordinates(total)
    candidates = settings.candidates(total, k=k)
    step = replace(settings, mask_steps=1, mask_batch=rows)

    def localize(task: LearnableTask) -> None:
        tuned = snapshot(fake.parameters) if localizer.needs_dense_run else {}
        dense = DenseRun(tuned, snapshot(task.head), None, Passes())
        with inputs_of_task(task, step, dense, counter=RowCounter()) as inputs:
            if candidates is not None and localizer.score_candidates is not None:
                localizer.score_candidates(inputs, fake.region(candidates), k=k, steps=1)
                return
            if localizer.stored_as == "seed":
                return
            scores = inputs.zeros()
            if localizer.needs_gradients:
                add_gradient_(inputs, 0, into=lambda name, gradient: None)
            del scores

    return _track("localization", fake, localize, rows=rows, length=length)


def track_region(
    fake: FakeModel, settings: FineTuning, *, length: int, coordinates: int
) -> PlannedPhase:
    """Track two steps of a region's training, with evaluations on dev."""
    short = _two_steps(settings)

    def train(task: LearnableTask) -> None:
        region = fake.region(coordinates)
        train_region(task, region, short, head=snapshot(task.head), seed=0)

    return _track("region training", fake, train, rows=short.batch_size, length=length)


class MemoryTracker(TorchDispatchMode):
    """Count the bytes of the tensors that operations make inside a `with` block.

    A storage counts once, until the last tensor on it is gone, in `now`; `peak` is the most that
    lived at once. Tensors given as `known`, such as those of the model, count nothing. A fake
    tensor that is read as a number is read as 1: a loss is finite, a condition holds.
    """

    def __init__(self, known: Iterable[Tensor] = ()) -> None:
        super().__init__()
        self.now = 0
        self.peak = 0
        self._known = [tensor.untyped_storage() for tensor in known]
        self._bytes = {storage._cdata: 0 for storage in self._known}

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run an operation and count what it made."""
        if func is _READ and isinstance(args[0], FakeTensor):
            return 1.0 if args[0].is_floating_point() else 1
        out = func(*args, **(kwargs or {}))
        for leaf in pytree.tree_leaves(out):
            if isinstance(leaf, Tensor) and leaf.layout == torch.strided:
                self._count(leaf)
        return out

    def _count(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._bytes:
            return
        self._bytes[key] = storage.nbytes()
        self.now += self._bytes[key]
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._forget, key)

    def _forget(self, key: int) -> None:
        self.now -= self._bytes.pop(key, 0)


def _track(
    name: str, fake: FakeModel, run: Callable[[LearnableTask], None], *, rows: int, length: int
) -> PlannedPhase:
    """Run a phase on a task of `rows` training texts; the model is put back to how it was."""
    tracker = MemoryTracker((*fake.model.parameters(), *fake.model.buffers()))
    living: list[int] = []
    """Living bytes whenever a training pass begins."""
    task = fake.task(length=length, train=rows, dev=_DEV_ROWS)

    def forward(batch: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            living.append(tracker.now)
        return task.forward(batch)

    try:
        with preserve_requires_grad(fake.model.parameters()), tracker:
            run(replace(task, forward=forward))
    finally:
        fake.model.eval()
    at_rest = living[len(living) // 2] if living else 0
    return PlannedPhase(name, at_rest, tracker.peak - at_rest, fake.backbone_bytes + tracker.peak)


def _two_steps(settings: FineTuning) -> FineTuning:
    """Return a schedule that evaluates after the first step, so that the second has a best one.

    Of a batch in parts, two parts are as full as all: the second meets the gradients of the first.
    """
    batch, micro = settings.batch_size, settings.micro_batch
    return replace(
        settings,
        steps=2,
        lr=1.0,
        batch_size=batch if micro is None else min(batch, 2 * micro),
        evaluations=2,
    )


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
