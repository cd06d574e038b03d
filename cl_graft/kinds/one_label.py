"""Kinds whose rows have one label, a class or a number, with a linear head on the features."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from cl_graft.errors import DamagedFile, InputError
from cl_graft.kinds.kind import Encoding, Kind, encode_for
from cl_graft.kinds.rows import Answer, EncodedRows, Row
from cl_graft.kinds.text_task import TextTask
from cl_graft.models import TaskModel, linear_head

if TYPE_CHECKING:
    pass


class OneLabel(Kind):
    """A kind whose rows have one or two texts and one label, a class or a number.

    Attributes:
        dtype: Type of the targets.
    """

    one_label = True
    dtype: ClassVar[torch.dtype]

    def make_targets(self, rows: Sequence[Row]) -> Tensor:
        """Return the labels of rows, (n,)."""
        return torch.tensor([row.label for row in rows], dtype=self.dtype)

    def encode(
        self,
        rows: Sequence[Any],
        encoding: Encoding,
    ) -> EncodedRows:
        """Encode texts or pairs of texts with `encode_rows`."""
        made = encode_for(rows, encoding)
        return EncodedRows(made.inputs, self.make_targets(rows), torch.arange(len(rows)), made.cut)

    def make_head(self, model: TaskModel, task: TextTask, *, seed: int) -> nn.Module:
        """Make a linear head on the features."""
        return linear_head(model.hidden_size, self.count_outputs(task), seed=seed)

    def answer(
        self,
        outputs: Tensor,
        encoded: EncodedRows,
        rows: Sequence[Row],
        metadata: Mapping[str, Any],
    ) -> list[Answer]:
        """Name the likeliest label of each row, and the probability of each; or the numbers."""
        return _read_logits(outputs, metadata)


def _read_logits(logits: Tensor, metadata: Mapping[str, Any]) -> list[Answer]:
    """Name the likeliest label of each row, (n, K), and the probability of each label.

    Without names a single logit is a number, and several are labels named by their places.

    Raises:
        DamagedFile: If the metadata name another number of labels.
    """
    names = [str(name) for name in metadata.get("label_names") or []]
    if not names and logits.shape[1] == 1:
        return [Answer(float(value), {}, (float(value),)) for value in logits[:, 0]]
    names = names or [str(number) for number in range(logits.shape[1])]
    if len(names) != logits.shape[1]:
        raise DamagedFile(f"it names {len(names)} labels, and has {logits.shape[1]} logits")
    found = metadata.get("temperature")
    temperature = float(found["value"]) if isinstance(found, Mapping) else None
    shares = (logits.double() / (temperature or 1.0)).softmax(-1)
    return [
        Answer(
            names[int(row.argmax())],
            dict(zip(names, share.tolist(), strict=True)),
            tuple(row.tolist()),
            temperature,
        )
        for row, share in zip(logits, shares, strict=True)
    ]


def check_labels(task: TextTask, is_valid: Callable[[int | float], bool], expected: str) -> None:
    """Refuse a task with a row whose label is none.

    Args:
        task: The task.
        is_valid: Whether a label is one.
        expected: Labels that are, in words.

    Raises:
        InputError: At the first such row.
    """
    for place, row in task.placed_rows():
        if isinstance(row.label, bool) or not is_valid(row.label):
            raise InputError(f"{place} has label {row.label!r}, expected {expected}")
