"""Classification: one of some classes for a text or a pair of texts."""

from __future__ import annotations

import torch
from torch import Tensor

from cl_graft.errors import InputError, join_names
from cl_graft.kinds.confusions import Confusions, count_rows
from cl_graft.kinds.kind import register_kind
from cl_graft.kinds.one_label import OneLabel, check_labels
from cl_graft.kinds.text_task import TextTask


@register_kind
class Classification(OneLabel):
    """One of some classes for a text or a pair of texts.

    Encoders answer through a linear head on their features, language models with the label words of
    a prompt.
    """

    name = "classification"
    metrics = ("accuracy", "f1", "matthews")
    families = ("encoder", "masked_lm", "causal_lm", "seq2seq_lm")
    needs_classes = True
    dtype = torch.int64

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
                f"{join_names(names)}"
            )
        check_labels(
            task,
            lambda label: isinstance(label, int) and 0 <= label < len(names),
            f"an integer in [0, {len(names)})",
        )

    def reported_metrics(self, task: TextTask) -> tuple[str, ...]:
        """Return accuracy: tasks with another metric are often read by both."""
        return ("accuracy",)

    def confusions(
        self, task: TextTask, outputs: Tensor, targets: Tensor, numbers: Tensor
    ) -> list[Confusions]:
        """Count rows by their right and their likeliest class."""
        return [count_rows(task.label_names, outputs, targets, numbers)]

    def describe(self, task: TextTask) -> str:
        """Return the number of classes."""
        return f"{len(task.label_names)} classes"

    def count_outputs(self, task: TextTask) -> int:
        """Return the number of classes."""
        return len(task.label_names)
