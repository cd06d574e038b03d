"""Classification and regression: one label a row, a class or a number."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from cl_graft.errors import DamagedFile, InputError, join_names
from cl_graft.kinds.kind import Kind, Metadata, register_kind
from cl_graft.kinds.rows import Answer, Confusions, EncodedRows, Row, count_rows
from cl_graft.kinds.text_encoding import Encoding, encode_for
from cl_graft.kinds.text_task import TextTask
from cl_graft.models import TaskModel, linear_head


class OneLabel(Kind):
    """A kind whose rows have one or two texts and one label, a class or a number."""

    one_label = True
    dtype: ClassVar[torch.dtype]

    def encode(self, rows: Sequence[Any], encoding: Encoding) -> EncodedRows:
        """Encode texts or pairs of texts; targets are the labels, (n,)."""
        labels = torch.tensor([row.label for row in rows], dtype=self.dtype)
        return encode_for(rows, encoding, labels)

    def make_head(self, model: TaskModel, task: TextTask, *, seed: int) -> nn.Module:
        """Make a linear head on the features."""
        return linear_head(model.hidden_size, self.count_outputs(task), seed=seed)

    def answer(
        self, outputs: Tensor, encoded: EncodedRows, rows: Sequence[Row], metadata: Metadata
    ) -> list[Answer]:
        """Name the likeliest label of each row, and the probability of each; or the numbers.

        Without names a single logit is a number, and several are labels named by their places.
        """
        names = [str(name) for name in metadata.get("label_names") or []]
        if not names and outputs.shape[1] == 1:
            return [Answer(float(value), {}, (float(value),)) for value in outputs[:, 0]]
        names = names or [str(number) for number in range(outputs.shape[1])]
        if len(names) != outputs.shape[1]:
            raise DamagedFile(f"it names {len(names)} labels, and has {outputs.shape[1]} logits")
        stored = metadata.get("temperature")
        temperature = float(stored["value"]) if isinstance(stored, Mapping) else None
        shares = (outputs.double() / (temperature or 1.0)).softmax(-1)
        return [
            Answer(
                names[int(row.argmax())],
                dict(zip(names, share.tolist(), strict=True)),
                tuple(row.tolist()),
                temperature,
            )
            for row, share in zip(outputs, shares, strict=True)
        ]


def _check_labels(task: TextTask, is_valid: Callable[[int | float], bool], expected: str) -> None:
    for origin, row in task.placed_rows():
        if isinstance(row.label, bool) or not is_valid(row.label):
            raise InputError(f"{origin} has label {row.label!r}, expected {expected}")


@register_kind
class Classification(OneLabel):
    """One of some classes for a text or a pair of texts, by a linear head or label words."""

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
        _check_labels(
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


@register_kind
class Regression(OneLabel):
    """A number for a text or a pair of texts, learned by the squared error."""

    name = "regression"
    metrics = ("pearson", "spearman")
    dtype = torch.float32

    def check(self, task: TextTask) -> None:
        """Check that there are no label names, and that labels are finite numbers that differ.

        A correlation has no value where all numbers are equal; dev rows may be a handful.
        """
        if task.label_names or task.positive is not None:
            raise InputError(
                f"task {task.name!r} is a regression, so it has neither label names nor a positive "
                f"label; got {list(task.label_names)}, {task.positive!r}"
            )
        _check_labels(task, math.isfinite, "a finite number")
        for split, rows in (("train", task.train), ("test", task.test)):
            if len({row.label for row in rows}) == 1:
                raise InputError(
                    f"task {task.name!r}: the {len(rows):,} {split} row(s) all have the number "
                    f"{rows[0].label}; a correlation needs two different numbers or more"
                )

    def choose_tried(self, rows: Sequence[Any], count: int) -> tuple[Any, ...]:
        """Return the first rows, and one with another number where these have only one."""
        first = tuple(rows[:count])
        if len({row.label for row in first}) > 1:
            return first
        others = (row for row in rows[count:] if row.label != first[0].label)
        return (*first, *islice(others, 1))

    def count_outputs(self, task: TextTask) -> int:
        """Return 1."""
        return 1
