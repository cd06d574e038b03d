"""Classification: one of some classes for a text or a pair of texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from cl_graft.errors import DamagedFile, InputError, listed
from cl_graft.kinds.prompts import Prompt
from cl_graft.kinds.rows import Answer, EncodedRows, Row
from cl_graft.kinds.text_encoding import encode_rows
from cl_graft.kinds.text_task import Kind, TextTask, register_kind
from cl_graft.models import TaskModel, linear_head

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase as Tokenizer

__all__ = ["Classification", "check_labels", "encode_texts", "read_logits"]


@register_kind
class Classification(Kind):
    """One of some classes for a text or a pair of texts.

    Encoders answer through a linear head on their features, language models with the label words of
    a prompt.
    """

    name = "classification"
    metrics = ("accuracy", "f1", "matthews")
    families = ("encoder", "masked_lm", "causal_lm")
    needs_classes = True

    def check(self, task: TextTask) -> None:
        """Check label names, labels, and the positive label."""
        names = task.label_names
        if len(names) < 2 or len(set(names)) != len(names):
            raise InputError(
                f"task {task.name!r} needs two or more different label names, got {list(names)}"
            )
        if task.positive is not None and (
            task.metric != "f1" or len(names) != 2 or task.positive not in names
        ):
            raise InputError(
                f"task {task.name!r}: positive {task.positive!r} is for the metric 'f1' of two "
                f"labels, and one of them; the metric is {task.metric!r}, the labels are "
                f"{listed(names)}"
            )
        check_labels(
            task,
            lambda label: isinstance(label, int) and 0 <= label < len(names),
            f"an integer in [0, {len(names)})",
        )

    def describe(self, task: TextTask) -> str:
        """Return the number of classes."""
        return f"{len(task.label_names)} classes"

    def count_outputs(self, task: TextTask) -> int:
        """Return the number of classes."""
        return len(task.label_names)

    def encode(
        self,
        rows: Sequence[Any],
        tokenizer: Tokenizer,
        *,
        family: str,
        prompt: Prompt | None,
        max_length: int,
        first: int = 0,
        task: TextTask | None = None,
    ) -> EncodedRows:
        """Encode texts with `encode_rows`; targets are class ids."""
        return encode_texts(rows, tokenizer, family, prompt, max_length, torch.int64)

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
        """Name the likeliest label, and the probability of each."""
        return read_logits(outputs, metadata)


def read_logits(logits: Tensor, metadata: Mapping[str, Any]) -> list[Answer]:
    """Name the likeliest label of each row, (n, K), and the probability of each label.

    Without names a single logit is a number, and several are labels named by their places.

    Raises:
        DamagedFile: If the metadata name another number of labels.
    """
    names = [str(name) for name in metadata.get("label_names", [])]
    if not names and logits.shape[1] == 1:
        return [Answer(float(value), {}, (float(value),)) for value in logits[:, 0]]
    names = names or [str(number) for number in range(logits.shape[1])]
    if len(names) != logits.shape[1]:
        raise DamagedFile(f"the bank names {len(names)} labels, and has {logits.shape[1]} logits")
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


def encode_texts(
    rows: Sequence[Row],
    tokenizer: Tokenizer,
    family: Any,
    prompt: Prompt | None,
    max_length: int,
    dtype: torch.dtype,
) -> EncodedRows:
    """Encode texts or pairs of texts, with the labels in a type as targets."""
    made = encode_rows(rows, tokenizer, family=family, prompt=prompt, max_length=max_length)
    targets = torch.tensor([row.label for row in rows], dtype=dtype)
    return EncodedRows(made.inputs, targets, torch.arange(len(rows)), made.cut)


def check_labels(task: TextTask, is_valid: Callable[[int | float], bool], expected: str) -> None:
    """Refuse a task with a row whose label is none.

    Args:
        task: The task.
        is_valid: Whether a label is one.
        expected: Labels that are, in words.

    Raises:
        InputError: At the first such row.
    """
    for split in ("train", "dev", "test"):
        for number, row in enumerate(getattr(task, split), start=1):
            if isinstance(row.label, bool) or not is_valid(row.label):
                raise InputError(
                    f"task {task.name!r}: {split} row {number} has label {row.label!r}, "
                    f"expected {expected}"
                )
