"""Text tasks and kinds of tasks: what a row of each kind holds, and how it is answered and scored.

A task is plain frozen data. It knows nothing of tokenizers, models or continual learning; where its
rows came from and how they were split is written down in `TextTask.source`. What depends on its
kind is asked of its `Kind`, one file each in this room.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor, nn

from cl_graft.errors import InputError
from cl_graft.kinds.prompts import Prompt
from cl_graft.kinds.rows import Answer, EncodedRows, Row, limit_rows
from cl_graft.kinds.task_name import check_task_name
from cl_graft.metrics.task_score import METRICS, Scorer
from cl_graft.models import TaskModel
from cl_graft.runtime.registry import Registry

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase as Tokenizer

__all__ = [
    "KINDS",
    "Kind",
    "TextTask",
    "find_kind",
    "register_kind",
]


class Kind(ABC):
    """A kind of tasks: what a row holds, how it is encoded, answered and scored.

    A kind is a class in one file, of which one instance is registered. What it does not define is
    as for classification. Losses need no kind: `cl_graft.metrics.task_loss` goes by the shape of
    the targets.

    Attributes:
        name: Name in settings, data and banks.
        metrics: Names of metrics that fit it; the first is the default.
        families: Model families that can answer it.
        columns: Columns that a data set of this kind has, each with its usual names; the first
            name is that in messages. Empty where `cl_graft.data.columns` reads it.
        optional: Columns that it may have, likewise.
        one_label: Whether a row has one label, a class or a number, and nothing else to learn.
        class_axis: Whether the last axis of its outputs are classes, beside which those of wider
            tasks can stand.
        needs_classes: Whether `Row.label` is a class of which training rows are needed; shots then
            count rows of each class.
    """

    name: ClassVar[str]
    metrics: ClassVar[tuple[str, ...]]
    families: ClassVar[tuple[str, ...]] = ("encoder",)
    columns: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    optional: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    one_label: ClassVar[bool] = False
    class_axis: ClassVar[bool] = True
    needs_classes: ClassVar[bool] = False

    @abstractmethod
    def check(self, task: TextTask) -> None:
        """Make sure that a task's rows, label names and metric fit together.

        Raises:
            InputError: If they do not; rows are named by split and number.
        """

    @abstractmethod
    def describe(self, task: TextTask) -> str:
        """Return what a task asks, such as ``"3 classes"``."""

    def describe_entry(self, metadata: Mapping[str, Any]) -> str:
        """Return what an entry of a bank answers, such as the names of its labels."""
        return ", ".join(map(str, metadata.get("label_names") or ())) or "number"

    @abstractmethod
    def count_outputs(self, task: TextTask) -> int:
        """Return the size of the last axis of a task's outputs: classes; 1 for a number."""

    def read(self, values: Mapping[str, object], place: str) -> object:
        """Return what a record holds, before label names are known.

        Args:
            values: Values by column, under the first of a column's usual names; optional columns
                that the data lack are left out.
            place: File and line, for messages.

        Raises:
            InputError: If something is wrong with it.
        """
        raise NotImplementedError

    def make_rows(
        self, drafts: Mapping[str, Sequence[tuple[Any, str]]], declared: Mapping[str, Sequence[str]]
    ) -> tuple[dict[str, list[Row | InputError]], dict[str, Any]]:
        """Make rows of what was read, when all splits are known.

        Args:
            drafts: What `read` returned, with its place, by split; ``"train"`` is among them.
            declared: Names that the data declare, such as ``"label_names"``, ``"span_types"``.

        Returns:
            The rows by split, an error where one cannot be used; and fields of the `TextTask`, such
            as `label_names`.
        """
        raise NotImplementedError

    @abstractmethod
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
        """Encode rows for a model family.

        Args:
            rows: The rows.
            tokenizer: A tokenizer of transformers.
            family: Family of the model, one of `families`.
            prompt: The task's prompt for the family; None for encoders.
            max_length: Tokens an input, special ones included.
            first: Number of the first input, where targets hold the numbers of inputs.
            task: The task; None for texts that are to be answered, whose targets mean nothing.

        Raises:
            InputError: If the rows, the prompt or the tokenizer do not fit the family.
        """

    @abstractmethod
    def make_head(self, model: TaskModel, task: TextTask, *, seed: int) -> nn.Module:
        """Make the head that answers a task on an encoder; it is not added to the model.

        Args:
            model: The model.
            task: The task.
            seed: Seed of the first values.
        """

    def scorer(self, task: TextTask, encoded: Mapping[str, EncodedRows]) -> Scorer | None:
        """Return what scores outputs where a metric needs more than tensors; None elsewhere.

        Args:
            task: The task.
            encoded: Rows of the task by split, before they are sorted.
        """
        return None

    def metadata(self, task: TextTask) -> dict[str, Any]:
        """Return what an entry of a bank records of the task to answer it, beside its labels."""
        return {}

    def row(self, text: str, pair: str | None) -> Row:
        """Return the row of a text that is to be answered."""
        return Row(text, pair, 0)

    @abstractmethod
    def answer(
        self,
        outputs: Tensor,
        encoded: EncodedRows,
        rows: Sequence[Row],
        metadata: Mapping[str, Any],
    ) -> list[Answer]:
        """Say what outputs mean, one answer a row.

        Args:
            outputs: Outputs of the model for `encoded.inputs`, fp32, on the CPU.
            encoded: The encoded rows.
            rows: The rows.
            metadata: Metadata of the entry that answered.

        Raises:
            DamagedFile: If the entry names another number of labels than there are outputs.
        """


def _load_kinds() -> None:
    # By name, as these modules import this one.
    for name in ("classification", "regression", "tagging", "extractive_qa"):
        import_module(f"cl_graft.kinds.{name}")


KINDS: Registry[Kind] = Registry("kind of task", group="cl_graft.kinds", load_own=_load_kinds)
"""Kinds of tasks by name."""


def find_kind(metadata: Mapping[str, object]) -> Kind:
    """Return the kind of a task from the metadata of its entry.

    Raises:
        InputError: If no such kind is registered.
    """
    plain = "regression" if metadata.get("label_names") == [] else "classification"
    return KINDS.find(str(metadata.get("kind") or plain))


def register_kind(kind: type[Kind]) -> type[Kind]:
    """Register a kind of tasks; used as a decorator of its class.

    A package that is installed beside this one names its module as an entry point of the group
    ``cl_graft.kinds``.

    Raises:
        ValueError: If the name is taken.
    """
    KINDS.register(kind.name, kind())
    return kind


@dataclass(frozen=True)
class TextTask:
    """A task ready to be encoded.

    Attributes:
        name: Name of the task, safe as a file name.
        label_names: Names of the labels; `label_names[i]` is that of class id i, or of tag i. Empty
            for a regression and for extractive QA.
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
        kind: Name of a registered kind of tasks; empty means ``"classification"``, or without
            label names ``"regression"``.
        intent_names: Names of the intents of a tagging task, one of which each row has; empty where
            rows have none.

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
    kind: str = ""
    intent_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_task_name(self.name)
        if not self.kind:
            plain = "classification" if self.label_names else "regression"
            object.__setattr__(self, "kind", plain)
        _check_header(self)
        _check_rows(self)
        self.own_kind.check(self)

    def __repr__(self) -> str:
        sizes = ", ".join(
            f"{len(getattr(self, split)):,} {split}" for split in ("train", "dev", "test")
        )
        return f"TextTask({self.name!r}, {self.own_kind.describe(self)}, rows: {sizes})"

    @property
    def own_kind(self) -> Kind:
        """The kind of the task."""
        return KINDS.find(self.kind)

    @property
    def num_outputs(self) -> int:
        """Number of logits of a row, or of each token: classes; 1 for a regression."""
        return self.own_kind.count_outputs(self)

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes of rows, of which each needs training rows; empty without."""
        return self.label_names if self.own_kind.needs_classes else ()

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
        header = [self.name, self.label_names, *([self.intent_names] if self.intent_names else [])]
        digest = hashlib.sha256(json.dumps(header).encode())
        for split in ("train", "dev", "test"):
            digest.update(f"\n{split}\n".encode())
            for row in getattr(self, split):
                digest.update(json.dumps(row.content).encode() + b"\n")
        return digest.hexdigest()

    def with_limits(
        self,
        *,
        seed: int,
        max_train: int | None = None,
        max_dev: int | None = None,
        max_test: int | None = None,
    ) -> TextTask:
        """Keep at most `max_train` training, `max_dev` dev and `max_test` test rows, by `seed`.

        The rows kept are those of a seeded permutation's beginning, left in their order; a smaller
        limit keeps a subset of what a larger one keeps. Of dev, the first row of each class comes
        before all others, so that every class stays if `max_dev` has room for it. Recorded in
        `source["limits"]`.

        Raises:
            InputError: If a limit is below 1, or leaves a class without a training row.
        """
        train = limit_rows(self.train, max_train, seed, "max_train")
        dev = limit_rows(self.dev, max_dev, seed, "max_dev", every_class=bool(self.class_names))
        test = limit_rows(self.test, max_test, seed, "max_test")
        if (train, dev, test) == (self.train, self.dev, self.test):
            return self
        present = {row.label for row in train}
        for label, label_name in enumerate(self.class_names):
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


def _check_header(task: TextTask) -> None:
    try:
        metric = METRICS.find(task.metric)
        kind = KINDS.find(task.kind)
    except InputError as error:
        raise InputError(f"task {task.name!r}: {error}") from None
    if metric.kind != task.kind:
        fitting = ", ".join(name for name, one in METRICS.items() if one.kind == task.kind)
        raise InputError(
            f"task {task.name!r} is a {task.kind.replace('_', ' ')} task: metric {task.metric!r} "
            f"does not fit it; fitting are {fitting}"
        )
    if task.positive is not None and "f1" not in kind.metrics:
        raise InputError(
            f"task {task.name!r}: positive {task.positive!r} is for the metric 'f1' of two labels; "
            f"the metric is {task.metric!r}"
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
