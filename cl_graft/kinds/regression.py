"""Regression: a number for a text or a pair of texts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from cl_graft.errors import InputError
from cl_graft.kinds.classification import check_labels, encode_texts, read_logits
from cl_graft.kinds.prompts import Prompt
from cl_graft.kinds.rows import Answer, EncodedRows, Row
from cl_graft.kinds.text_task import Kind, TextTask, register_kind
from cl_graft.models import TaskModel, linear_head

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase as Tokenizer

__all__ = ["Regression"]


@register_kind
class Regression(Kind):
    """A number for a text or a pair of texts, learned by the squared error."""

    name = "regression"
    metrics = ("pearson", "spearman")

    def check(self, task: TextTask) -> None:
        """Check that there are no label names, and that labels are finite numbers."""
        if task.label_names or task.positive is not None:
            raise InputError(
                f"task {task.name!r} is a regression, so it has neither label names nor a positive "
                f"label; got {list(task.label_names)}, {task.positive!r}"
            )
        check_labels(task, math.isfinite, "a finite number")

    def describe(self, task: TextTask) -> str:
        """Return the name of the kind."""
        return "regression"

    def count_outputs(self, task: TextTask) -> int:
        """Return 1."""
        return 1

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
        """Encode texts as for classification; targets are fp32 numbers."""
        return encode_texts(rows, tokenizer, family, prompt, max_length, torch.float32)

    def make_head(self, model: TaskModel, task: TextTask, *, seed: int) -> nn.Module:
        """Make a linear head of one output on the features."""
        return linear_head(model.hidden_size, self.count_outputs(task), seed=seed)

    def answer(
        self,
        outputs: Tensor,
        encoded: EncodedRows,
        rows: Sequence[Row],
        metadata: Mapping[str, Any],
    ) -> list[Answer]:
        """Return the numbers."""
        return read_logits(outputs, metadata)
