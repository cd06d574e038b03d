"""A model, a task and a region made of PyTorch's fake tensors, from a config alone.

Fake tensors have shapes and types but no memory, so a model of 70 B parameters costs no more than a
small one. Operations run as on real tensors, and save the same tensors for the backward pass.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.data import TensorDataset

from cl_graft.errors import InputError
from cl_graft.grafts.region import Layout, Region
from cl_graft.metrics import task_loss
from cl_graft.models import TaskModel, graftable_parameters
from cl_graft.models.heads import LabelStrings, LabelWords
from cl_graft.models.load import DTYPES, build_backbone
from cl_graft.models.task_model import WRITING
from cl_graft.models.text_generation import ANSWER, TextHead
from cl_graft.settings.parts import ModelSettings
from cl_graft.training.examples import Examples
from cl_graft.training.learnable_task import LearnableTask

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
