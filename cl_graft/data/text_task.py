"""A text task: named rows in three splits, and how they are asked and scored.

A task is plain frozen data. It knows nothing of tokenizers, models or continual learning; where its
rows came from and how they were split is written down in `TextTask.source`.
"""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from cl_graft.data.prompts import Prompt
from cl_graft.errors import InputError, listed
from cl_graft.metrics.task_score import METRICS
from cl_graft.runtime.seeding import permutation

__all__ = ["Row", "TextTask", "check_task_name"]

_FILE_SAFE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class Row:
    """One labelled text, or pair of texts.

    Attributes:
        text: First text.
        text_pair: Second text; None if there is none.
        label: Class id in [0, number of classes), or a number for a regression.
    """

    text: str
    text_pair: str | None
    label: int | float


@dataclass(frozen=True)
class TextTask:
    """A classification task or a regression, ready to be encoded.

    Attributes:
        name: Name of the task, safe as a file name.
        label_names: Names of the labels; `label_names[i]` is that of class id i. Empty for a
            regression.
        train: Training rows. Every row of the task has a second text, or none has.
        dev: Rows for choosing.
        test: Rows for scores.
        metric: Name of a registered metric, see `cl_graft.metrics.register_metric`.
        positive: Label of which the metric ``"f1"`` of two classes is the F1; None means the
            second.
        prompt: Prompt of a masked language model; None if the task has none.
        causal_prompt: Prompt of a causal language model; None if the task has none.
        max_length: Tokens a row, special ones included.
        source: Provenance of the rows: paths, split rule, counts.

    Raises:
        InputError: If the name is not safe as a file name, or rows, labels, metric and label names
            do not fit together.
    """

    name: str
    label_names: tuple[str, ...]
    train: tuple[Row, ...]
    dev: tuple[Row, ...]
    test: tuple[Row, ...]
    metric: str = "accuracy"
    positive: str | None = None
    prompt: Prompt | None = None
    causal_prompt: Prompt | None = None
    max_length: int = 128
    source: Mapping[str, object] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        check_task_name(self.name)
        _check_header(self)
        _check_rows(self)

    def __repr__(self) -> str:
        sizes = ", ".join(
            f"{len(getattr(self, split)):,} {split}" for split in ("train", "dev", "test")
        )
        kind = "regression" if self.regression else f"{self.num_classes} classes"
        return f"TextTask({self.name!r}, {kind}, rows: {sizes})"

    @property
    def num_classes(self) -> int:
        """Number of classes; 1 (one output) for a regression."""
        return len(self.label_names) or 1

    @property
    def regression(self) -> bool:
        """Whether labels are numbers to predict, not classes."""
        return not self.label_names

    @property
    def pair(self) -> bool:
        """Whether each row has two texts."""
        return self.train[0].text_pair is not None

    @property
    def scored_by(self) -> str:
        """The name of the task's score for `cl_graft.metrics.score`, which knows class ids only."""
        first = self.positive is not None and self.positive == self.label_names[0]
        return "f1_of_class_0" if self.metric == "f1" and first else self.metric

    @cached_property
    def fingerprint(self) -> str:
        """Sha256 (hex) over the task's name, its label names and all rows of the three splits.

        Prompts and `max_length` are settings and no part of it.
        """
        digest = hashlib.sha256(json.dumps([self.name, self.label_names]).encode())
        for split in ("train", "dev", "test"):
            digest.update(f"\n{split}\n".encode())
            for row in getattr(self, split):
                digest.update(json.dumps([row.text, row.text_pair, row.label]).encode() + b"\n")
        return digest.hexdigest()

    def with_limits(
        self,
        *,
        seed: int,
        max_train: int | None = None,
        max_dev: int | None = None,
        max_test: int | None = None,
    ) -> "TextTask":
        """Keep at most `max_train` training, `max_dev` dev and `max_test` test rows, by `seed`.

        The rows kept are those of a seeded permutation's beginning, left in their order; a smaller
        limit keeps a subset of what a larger one keeps. Of dev, the first row of each class comes
        before all others, so that every class stays if `max_dev` has room for it. Recorded in
        `source["limits"]`.

        Raises:
            InputError: If a limit is below 1, or leaves a class without a training row.
        """
        train = _limit(self.train, max_train, seed, "max_train")
        dev = _limit(self.dev, max_dev, seed, "max_dev", every_class=not self.regression)
        test = _limit(self.test, max_test, seed, "max_test")
        if (train, dev, test) == (self.train, self.dev, self.test):
            return self
        present = {row.label for row in train}
        for label, label_name in enumerate(self.label_names):
            if label not in present:
                raise InputError(
                    f"max_train={max_train} leaves task {self.name!r} no training row of class "
                    f"{label_name!r}; raise it, or ask for shots, which count rows of each class"
                )
        limits = {
            "seed": seed,
            "train": [len(train), len(self.train)],
            "dev": [len(dev), len(self.dev)],
            "test": [len(test), len(self.test)],
        }
        source = {**self.source, "limits": limits}
        return replace(self, train=train, dev=dev, test=test, source=source)


def check_task_name(name: str) -> str:
    """Return `name` if it can name a file everywhere.

    Raises:
        InputError: If it holds anything but letters, digits, '.', '_' and '-', starts with a dot,
            or is longer than 100 characters.
    """
    if len(name) > 100 or not _FILE_SAFE.fullmatch(name):
        raise InputError(
            f"task name {name[:120]!r} cannot name a file: use up to 100 letters, digits, '.', '_' "
            "or '-' (no leading dot)"
        )
    return name


def _check_header(task: TextTask) -> None:
    try:
        metric = METRICS.find(task.metric)
    except InputError as error:
        raise InputError(f"task {task.name!r}: {error}") from None
    if len(task.label_names) == 1 or len(set(task.label_names)) != len(task.label_names):
        raise InputError(
            f"task {task.name!r} needs two or more different label names, got "
            f"{list(task.label_names)}"
        )
    if task.regression != (metric.regression):
        kind = "a regression" if task.regression else "a classification"
        raise InputError(f"task {task.name!r} is {kind}: metric {task.metric!r} does not fit it")
    if task.positive is not None and (
        task.metric != "f1" or len(task.label_names) != 2 or task.positive not in task.label_names
    ):
        raise InputError(
            f"task {task.name!r}: positive {task.positive!r} is for the metric 'f1' of two labels, "
            f"and one of them; the metric is {task.metric!r}, the labels are "
            f"{listed(task.label_names)}"
        )
    if task.max_length < 8:
        raise InputError(
            f"task {task.name!r}: max_length must be at least 8 tokens, got {task.max_length}"
        )


def _check_rows(task: TextTask) -> None:
    for split in ("train", "dev", "test"):
        rows: tuple[Row, ...] = getattr(task, split)
        if not rows:
            raise InputError(f"task {task.name!r} has no {split} rows")
        for number, row in enumerate(rows, start=1):
            if (row.text_pair is not None) != task.pair:
                raise InputError(
                    f"task {task.name!r}: {split} row {number} has "
                    f"{'one text' if task.pair else 'two texts'}, the first training row has "
                    f"{'two' if task.pair else 'one'}"
                )
            if not _is_valid_label(row.label, len(task.label_names)):
                expected = (
                    f"an integer in [0, {task.num_classes})"
                    if task.label_names
                    else "a finite number"
                )
                raise InputError(
                    f"task {task.name!r}: {split} row {number} has label {row.label!r}, "
                    f"expected {expected}"
                )


def _is_valid_label(label: int | float, classes: int) -> bool:
    if isinstance(label, bool):
        return False
    if classes:
        return isinstance(label, int) and 0 <= label < classes
    return math.isfinite(label)


def _limit(
    rows: tuple[Row, ...], limit: int | None, seed: int, key: str, *, every_class: bool = False
) -> tuple[Row, ...]:
    if limit is None:
        return rows
    if limit < 1:
        raise InputError(f"{key} must be at least 1, got {limit}")
    if limit >= len(rows):
        return rows
    order = permutation(len(rows), seed, key).tolist()
    if every_class:
        first = {rows[index].label: index for index in reversed(order)}
        leading = set(first.values())
        order.sort(key=lambda index: index not in leading)
    return tuple(rows[index] for index in sorted(order[:limit]))
