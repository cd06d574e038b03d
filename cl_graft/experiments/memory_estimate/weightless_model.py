"""Hollow models: everything of a model but its numbers.

A hollow model is made from a config alone. Its tensors have shapes, types and strides but no
memory (PyTorch's fake tensors, on the meta device underneath), so one of 70 B parameters costs
no more than a small one, and yet every operation on it takes the way that it would take with
numbers: the same kernels, the same tensors saved for the backward pass.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F
from torch.utils.data import TensorDataset

from cl_graft.errors import InputError
from cl_graft.models import TaskModel, graftable_parameters
from cl_graft.models.heads import LabelStrings, LabelWords
from cl_graft.models.load import build_backbone
from cl_graft.runtime.torchvision_operators import declare_missing_operators
from cl_graft.training.examples import Examples
from cl_graft.training.learnable_task import LearnableTask

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

__all__ = ["HollowModel", "hollow_model"]


@dataclass(frozen=True, eq=False)
class HollowModel:
    """A hollow model with the head of one task.

    Attributes:
        model: The model; its only head is that of task 0.
        mode: What its tensors belong to.
    """

    model: TaskModel
    mode: FakeTensorMode

    @property
    def parameters(self) -> dict[str, nn.Parameter]:
        """The graftable parameters by name."""
        return graftable_parameters(self.model)

    @property
    def head(self) -> dict[str, nn.Parameter]:
        """The parameters of the head by name."""
        return {f"heads.0.{n}": p for n, p in self.model.heads["0"].named_parameters()}

    @property
    def classes(self) -> int:
        """Classes of the task."""
        head = self.model.heads["0"]
        return (
            head.out_features if isinstance(head, nn.Linear) else len(head.get_buffer("token_ids"))
        )

    def tensors(self) -> Iterator[Tensor]:
        """Yield all parameters and buffers."""
        yield from self.model.parameters()
        yield from self.model.buffers()

    def problem(self, *, length: int, train: int, dev: int) -> LearnableTask:
        """Return the problem of learning texts of `length` tokens.

        Args:
            length: Tokens a text.
            train: Texts to train on.
            dev: Texts to choose on.
        """
        return LearnableTask(
            model=self.model,
            parameters=self.parameters,
            head=self.head,
            forward=lambda batch: self.model(batch, 0),
            criterion=F.cross_entropy,
            score=lambda logits, targets: 1.0,
            train=self._texts(train, length),
            dev=self._texts(dev, length),
            device=torch.device("cpu"),
            content="",
            precision=self.model.precision,
            recomputes=self.model.recomputes,
        )

    def _texts(self, rows: int, length: int) -> Examples:
        inputs = torch.ones(rows, 2, length, dtype=torch.int64)
        if self.model.family == "masked_lm":
            inputs[:, 0] += _MASK
            inputs[:, 0, 0] = _MASK
        return Examples(TensorDataset(inputs, torch.zeros(rows, dtype=torch.int64)))


def hollow_model(
    config: PreTrainedConfig,
    *,
    name: str,
    family: str,
    pooling: str = "mean",
    dtype: torch.dtype = torch.float32,
    classes: int = 2,
    precision: str = "fp32",
    recompute: bool = False,
    trust_remote_code: bool = False,
) -> HollowModel:
    """Make a model and the head of one task from a config, without numbers.

    Args:
        config: The config.
        name: What to call the model in messages.
        family: One of `cl_graft.models.FAMILIES`.
        pooling: As in `load_model`.
        dtype: The parameters' type.
        classes: Classes of the task; label words count as one token each.
        precision: What the backbone computes in, as in `load_model`.
        recompute: Use gradient checkpointing.
        trust_remote_code: As in `load_model`.

    Raises:
        InputError: If the architecture cannot serve the family, takes no token ids, or has no
            gradient checkpointing.
    """
    declare_missing_operators()
    from transformers.initialization import no_init_weights

    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode:
        with no_init_weights():  # some ways of drawing weights look at what they drew
            backbone = build_backbone(
                config, name=name, family=family, dtype=dtype, trust_remote_code=trust_remote_code
            )
        backbone.tie_weights()
        if "input_ids" not in inspect.signature(backbone.forward).parameters:
            kind = config.model_type
            raise InputError(f"{name!r} ({kind}) takes no token ids, so it is no text model")
        model = TaskModel(
            backbone,
            family=family,
            pooling=pooling,
            mask_token_id=_MASK,
            name=name,
            precision=precision,
        )
        model.heads["0"] = _head(model, classes)  # nothing to move, as add_head would
    if recompute:
        model.recompute_()
    _enter_at(backbone, mode)
    return HollowModel(model.eval(), mode)


_MASK = 1


def _head(model: TaskModel, classes: int) -> nn.Module:
    if model.family == "encoder":
        return nn.Linear(model.hidden_size, classes, dtype=torch.float32)
    words = range(2, 2 + classes)
    if model.family == "masked_lm":
        return LabelWords(words)
    return LabelStrings([[word] for word in words])


def _enter_at(backbone: Any, mode: FakeTensorMode) -> None:
    """Make whatever a forward pass of the backbone creates hollow, too."""
    forward: Callable[..., Any] = backbone.forward

    def hollow_forward(**inputs: Any) -> Any:
        with mode:
            hollow = {k: _hollow(v, mode) for k, v in inputs.items()}
            return forward(**hollow)

    backbone.forward = hollow_forward


def _hollow(value: Any, mode: FakeTensorMode) -> Any:
    return mode.from_tensor(value) if isinstance(value, Tensor) else value
