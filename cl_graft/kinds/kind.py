"""Kinds of tasks: the rows of each, with their encoding, answers and scores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor, nn

from cl_graft.errors import InputError, join_names
from cl_graft.kinds.prompts import Family, Prompt
from cl_graft.kinds.rows import Answer, Confusions, EncodedRows, Row
from cl_graft.kinds.text_encoding import Encoding, label_token_ids
from cl_graft.metrics.task_score import Scorer
from cl_graft.models import TaskModel, make_head
from cl_graft.runtime.registry import Registry
from cl_graft.training.fine_tuning_settings import DENSE_LR

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase as Tokenizer

    from cl_graft.kinds.text_task import TextTask


Metadata = Mapping[str, Any]
"""Metadata of a task in an entry of a bank, by name."""

Drafts = Mapping[str, Sequence[tuple[Any, str]]]
"""Items that `RowFormat.read` returned, each with its place, by split."""

MadeRows = tuple[dict[str, list[Row | InputError]], dict[str, Any]]
"""Rows by split, errors in place of those that cannot be used; and fields of the `TextTask`."""


class RowFormat:
    """The way from records to rows: their columns, and what these hold.

    Attributes:
        title: Name in sentences, such as ``"extractive QA"``; a kind without one takes its `name`.
        columns: Columns that a data set of this kind has, each with its usual names; the first
            name is that in messages. Empty where `cl_graft.data.columns` reads it.
        target_column: Name in `columns` of the right answers: dev and test rows are left out where
            no row of their file has one. Empty where there is no such column.
        optional: Columns that it may have, likewise.
        other_columns: Columns that a data set of this kind has instead, one mapping each.
    """

    title: ClassVar[str] = ""
    columns: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    target_column: ClassVar[str] = ""
    optional: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    other_columns: ClassVar[tuple[Mapping[str, tuple[str, ...]], ...]] = ()

    def find_columns(self, names: Collection[str], *, labelled: bool = True) -> list[str]:
        """Return the usual names of the kind's columns, where data with such names are of it.

        Data that are not `labelled` lack the column with what is to be learned.
        """
        return [
            name
            for columns in (self.columns, *self.other_columns)
            if all(
                any(each in names for each in usual)
                or (column == self.target_column and not labelled)
                for column, usual in columns.items()
            )
            for usual in columns.values()
            for name in usual
        ]

    def read(self, values: Mapping[str, object], origin: str) -> object:
        """Return what a record holds, before label names are known.

        Args:
            values: Values by column, under the first of a column's usual names; optional columns
                that the data lack are left out.
            origin: File and line, for messages.

        Raises:
            InputError: If something is wrong with it; a `ColumnError` is shown with the name that
                the column has in the data.
        """
        raise NotImplementedError

    def make_rows(self, drafts: Drafts, declared: Mapping[str, Sequence[str]]) -> MadeRows:
        """Make rows of what `read` returned, when all splits are known; by default they are it.

        Args:
            drafts: What was read; ``"train"`` is among the splits.
            declared: Names that the data declare, such as ``"label_names"``, ``"span_types"``.

        Raises:
            InputError: If label names are declared, and the kind has none.
        """
        if names := declared.get("label_names"):
            raise InputError(f"{self.title} has no label names, got {join_names(names)}")
        return {split: [row for row, _ in pairs] for split, pairs in drafts.items()}, {}


class Kind(RowFormat, ABC):
    """A kind of tasks: how rows are encoded, answered and scored; as a `RowFormat`, what they hold.

    A kind is a class in one file, of which one instance is registered. What it does not define is
    as for classification. Losses need no kind: `cl_graft.metrics.task_loss` goes by the shape of
    the targets.

    Attributes:
        name: Name in settings, data and banks.
        metrics: Names of metrics that fit it; the first is the default.
        families: Model families that can answer it.
        one_label: Whether a row has one label, a class or a number, and nothing else to learn.
        class_axis: Whether the last axis of its outputs are classes, beside which those of wider
            tasks can stand.
        head_tensor: Name of a tensor that the heads of this kind alone have; empty where there is
            none.
        needs_classes: Whether `Row.label` is a class of which training rows are needed; shots then
            count rows of each class.
        dense_lr: Learning rate of dense training by SGD where a config says none.
    """

    name: ClassVar[str]
    metrics: ClassVar[tuple[str, ...]]
    families: ClassVar[tuple[str, ...]] = ("encoder",)
    one_label: ClassVar[bool] = False
    class_axis: ClassVar[bool] = True
    head_tensor: ClassVar[str] = ""
    needs_classes: ClassVar[bool] = False
    dense_lr: ClassVar[float] = DENSE_LR

    @abstractmethod
    def check(self, task: TextTask) -> None:
        """Refuse a task whose rows, label names and metric do not fit together.

        Raises:
            InputError: If they do not; rows are named by split and number.
        """

    def describe(self, task: TextTask) -> str:
        """Return what a task asks, such as ``"3 classes"``; by default the title."""
        return self.title

    def describe_entry(self, metadata: Metadata) -> str:
        """Return what an entry of a bank answers, such as the names of its labels."""
        if (names := metadata.get("label_names")) is None:
            return "not recorded"
        return ", ".join(map(str, names)) or "number"

    def reported_metrics(self, task: TextTask) -> tuple[str, ...]:
        """Return the metrics by which results state a task's score at the end, beside its own."""
        return self.metrics[:2]

    @abstractmethod
    def count_outputs(self, task: TextTask) -> int:
        """Return the size of the last axis of a task's outputs: classes; 1 for a number."""

    @abstractmethod
    def encode(self, rows: Sequence[Any], encoding: Encoding) -> EncodedRows:
        """Encode rows for a model family.

        Raises:
            InputError: If the rows, the prompt or the tokenizer do not fit the family.
        """

    def encode_training(self, rows: Sequence[Any], encoding: Encoding) -> EncodedRows:
        """Encode the rows to learn from; they differ where the answer is a part of the input."""
        return self.encode(rows, encoding)

    def choose_tried(self, rows: Sequence[Any], count: int) -> tuple[Any, ...]:
        """Return rows on which prompt and length are tried before a run: the first, or longest."""
        return tuple(rows[:count])

    def default_prompts(self, rows: Sequence[Row]) -> tuple[Prompt | None, Prompt | None]:
        """Return the masked and the causal prompt of a task that has none; None where none fits."""
        return None, None

    def find_prompt(self, task: TextTask, family: Family) -> Prompt | None:
        """Return the prompt by which a model of a family answers a task; None for encoders."""
        if family == "masked_lm":
            return task.prompt
        return None if family == "encoder" else task.causal_prompt

    def label_tokens(
        self, task: TextTask, tokenizer: Tokenizer, *, family: Family, max_length: int
    ) -> tuple[tuple[int, ...], ...] | None:
        """Return the tokens that a head without weights is made of: those of every label.

        They are None for encoders, and without a prompt.

        Raises:
            InputError: If a label word has several tokens, and the family answers with one.
        """
        prompt = self.find_prompt(task, family)
        if prompt is None:
            return None
        return label_token_ids(tokenizer, prompt, task.label_names, family=family)

    def count_reserved(self, head: Mapping[str, Tensor]) -> int:
        """Return how many tokens of a row an entry with this head keeps free for its answer."""
        return 0

    def make_prompted_head(
        self, model: TaskModel, task: TextTask, label_tokens: Sequence[Sequence[int]] | None
    ) -> nn.Module:
        """Make the head of a task on a prompted model, of what `label_tokens` returned."""
        outputs = task.num_outputs
        return make_head(model, classes=outputs, label_token_ids=label_tokens, seed=0)

    @abstractmethod
    def make_head(self, model: TaskModel, task: TextTask, *, seed: int) -> nn.Module:
        """Make the head that answers a task on an encoder; it is not added to the model."""

    def scorer(self, task: TextTask, encoded: Mapping[str, EncodedRows]) -> Scorer | None:
        """Return what scores outputs where a metric needs more than tensors; None elsewhere."""
        return None

    def confusions(
        self, task: TextTask, outputs: Tensor, targets: Tensor, numbers: Tensor
    ) -> list[Confusions]:
        """Count right and answered classes of test rows, for the errors in a report.

        Outputs are fp32, on the CPU; `numbers` are those of the rows, (n,).
        """
        return []

    def metadata(self, task: TextTask) -> dict[str, Any]:
        """Return what an entry of a bank records of the task to answer it, beside its labels."""
        return {}

    def metadata_of_targets(self, targets: Tensor) -> dict[str, Any]:
        """Return what an entry of a bank records of the targets of training, (m,) or (m, P)."""
        return {}

    def row(self, text: str, pair: str | None, metadata: Metadata) -> Row:
        """Return the row of a text that is to be answered by an entry with some metadata."""
        return Row(text, pair, 0)

    @abstractmethod
    def answer(
        self, outputs: Tensor, encoded: EncodedRows, rows: Sequence[Row], metadata: Metadata
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
    for name in ("one_label", "tagging", "extractive_qa", "text2text", "multi_label"):
        import_module(f"cl_graft.kinds.{name}")


KINDS: Registry[Kind] = Registry("kind of task", group="cl_graft.kinds", load_own=_load_kinds)
"""Kinds of tasks by name."""


def find_kind(metadata: Mapping[str, object]) -> Kind:
    """Return the kind of a task from the metadata of its entry.

    Raises:
        InputError: If no such kind is registered.

    Examples:
        >>> find_kind({"kind": "tagging"}).__class__.__name__
        'Tagging'
    """
    plain = "regression" if metadata.get("label_names") == [] else "classification"
    return KINDS.find(str(metadata.get("kind") or plain))


def find_kind_columns(names: Collection[str], *, labelled: bool = True) -> set[str]:
    """Return the usual names of columns of all kinds that data with these names may be of."""
    kinds = KINDS.values()
    return {name for kind in kinds for name in kind.find_columns(names, labelled=labelled)}


def register_kind(kind: type[Kind]) -> type[Kind]:
    """Register a kind of tasks; used as a decorator of its class.

    A package that is installed beside this one names its module as an entry point of the group
    ``cl_graft.kinds``.

    Raises:
        ValueError: If the name is taken.
    """
    kind.title = kind.title or kind.name.replace("_", " ")
    KINDS.register(kind.name, kind())
    return kind
