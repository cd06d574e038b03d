"""Several labels a text: each of a task's labels is there or not, learned by its own sigmoid.

Outputs have shape (n, K, 2): of each label the logit 0, and that of "it is there", whose
cross-entropy is that of a sigmoid. Targets have shape (n, K), 1 where a label is there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from cl_graft.errors import DamagedFile, InputError, join_names, nearest
from cl_graft.kinds.kind import Drafts, Kind, MadeRows, Metadata, register_kind
from cl_graft.kinds.rows import LABEL_COLUMNS, Answer, ColumnError, Confusions, EncodedRows, Row
from cl_graft.kinds.text_encoding import Encoding, encode_for
from cl_graft.kinds.text_task import TextTask
from cl_graft.metrics.task_score import register_metric
from cl_graft.models import TaskModel, linear_head
from cl_graft.models.heads import register_head

THRESHOLD = 0.5
"""Probability above which a label is answered."""


@dataclass(frozen=True, slots=True)
class LabelledRow(Row):
    """A text, or a pair of texts, with several labels or none: their numbers, ascending."""

    present: tuple[int, ...] = ()

    @property
    def content(self) -> list[Any]:
        """All that the row holds, as JSON."""
        return [self.text, self.text_pair, list(self.present)]


class LabelsHead(nn.Module):
    """A linear layer with a logit a label, beside each the logit 0 of its absence."""

    def __init__(self, hidden: int, labels: int, *, seed: int) -> None:
        super().__init__()
        self.labels = linear_head(hidden, labels, seed=seed)

    def forward(self, features: Tensor) -> Tensor:
        """Answer features, (n, D), with logits, (n, K, 2)."""
        there = self.labels(features)
        return torch.stack([torch.zeros_like(there), there], -1)


@register_head("labels.weight")
def _make_head(state: Mapping[str, Tensor], hidden: int) -> LabelsHead:
    return LabelsHead(hidden, len(state["labels.weight"]), seed=0)


@register_kind
class MultiLabel(Kind):
    """Several labels a text or a pair of texts, such as the topics of a message, or none."""

    name = "multi_label"
    title = "multi-label"
    metrics = ("micro_f1", "macro_f1", "subset_accuracy")
    columns: ClassVar = {"text": ("text",), "label_list": ("label_list",)}
    target_column = "label_list"
    optional: ClassVar = {"text_pair": ("text_pair",)}

    def find_columns(self, names: Collection[str], *, labelled: bool = True) -> list[str]:
        """Return the usual columns of labels, which may hold lists."""
        del labelled
        return [name for name in ("label_list", *LABEL_COLUMNS) if name in names]

    def check(self, task: TextTask) -> None:
        """Check label names and the labels of rows."""
        names = task.label_names
        if len(names) < 2 or len(set(names)) != len(names) or not all(names):
            raise InputError(
                f"task {task.name!r} needs two or more different label names, got {list(names)}"
            )
        for origin, row in task.placed_rows():
            present = getattr(row, "present", None)
            if present is None or list(present) != sorted(set(present) & set(range(len(names)))):
                raise InputError(
                    f"{origin} has labels {present}, expected different integers in "
                    f"[0, {len(names)}), ascending"
                )

    def reported_metrics(self, task: TextTask) -> tuple[str, ...]:
        """Return all three."""
        return self.metrics

    def describe(self, task: TextTask) -> str:
        """Return the number of labels."""
        return f"{len(task.label_names)} labels, several a row"

    def count_outputs(self, task: TextTask) -> int:
        """Return 2: a label is there or not."""
        return 2

    def read(self, values: Mapping[str, object], origin: str) -> object:
        """Return the texts, and the names of the labels."""
        texts = [values.get("text"), values.get("text_pair")]
        for column, text in zip(("text", "text_pair"), texts, strict=True):
            if column in values and (not isinstance(text, str) or not text.strip()):
                raise ColumnError(origin, column, f"must hold a text, got {text!r:.60}")
        names = values.get("label_list")
        if not isinstance(names, list | tuple) or not all(isinstance(n, str) for n in names):
            raise ColumnError(origin, "label_list", f"must hold a list of names, got {names!r:.60}")
        return *texts, tuple(names)

    def make_rows(self, drafts: Drafts, declared: Mapping[str, Sequence[str]]) -> MadeRows:
        """Number labels; names that were not declared are those of the training rows, sorted."""
        labels = {name for (*_, row_labels), _ in drafts["train"] for name in row_labels}
        names = tuple(declared.get("label_names") or sorted(labels))
        numbers = {name: number for number, name in enumerate(names)}
        rows = {
            split: [_make_row(draft, origin, numbers) for draft, origin in of_split]
            for split, of_split in drafts.items()
        }
        return rows, {"label_names": names}

    def encode(self, rows: Sequence[Any], encoding: Encoding) -> EncodedRows:
        """Encode the texts; of each label, whether it is there."""
        task = encoding.task
        targets = torch.zeros(len(rows), len(task.label_names) if task else 1, dtype=torch.int64)
        for number, row in enumerate(rows):
            if task is not None:
                targets[number, list(row.present)] = 1
        return encode_for(rows, encoding, targets)

    def confusions(
        self, task: TextTask, outputs: Tensor, targets: Tensor, numbers: Tensor
    ) -> list[Confusions]:
        """Count labels that are right, missed (answered as none), and false."""
        answered, right = outputs[..., 1] > outputs[..., 0], targets == 1
        none = len(task.label_names)
        counts: Counter[tuple[int, int]] = Counter()
        for label in range(none):
            has, gets = right[:, label], answered[:, label]
            counts[label, label] = int((has & gets).sum())
            counts[label, none] = int((has & ~gets).sum())
            counts[none, label] = int((~has & gets).sum())
        counts = +counts
        return [Confusions((*task.label_names, "no label"), counts, "labels")] if counts else []

    def make_head(self, model: TaskModel, task: TextTask, *, seed: int) -> nn.Module:
        """Make a linear head with a logit a label."""
        return LabelsHead(model.hidden_size, len(task.label_names), seed=seed)

    def answer(
        self, outputs: Tensor, encoded: EncodedRows, rows: Sequence[Row], metadata: Metadata
    ) -> list[Answer]:
        """Name the labels whose probability is above `THRESHOLD`, with the probability of each."""
        names = [str(name) for name in metadata.get("label_names") or []]
        if len(names) != outputs.shape[1]:
            raise DamagedFile(f"it names {len(names)} labels, and has {outputs.shape[1]} logits")
        logits = outputs[..., 1] - outputs[..., 0]
        answers = []
        for row, shares in zip(logits, logits.double().sigmoid().tolist(), strict=True):
            there = tuple(n for n, share in zip(names, shares, strict=True) if share > THRESHOLD)
            probabilities = dict(zip(names, shares, strict=True))
            answers.append(
                Answer("|".join(there), probabilities, tuple(row.tolist()), labels=there)
            )
        return answers


def _make_row(
    draft: tuple[str, str | None, tuple[str, ...]], origin: str, numbers: Mapping[str, int]
) -> Row | InputError:
    text, pair, names = draft
    unknown = next((name for name in names if name not in numbers), None)
    if unknown is not None:
        return InputError(
            f"{origin}: the label {unknown!r} is not among those of the training rows, or the "
            f"declared ones, {join_names(tuple(numbers))}; {nearest(unknown, numbers)}"
        )
    return LabelledRow(text, pair, 0, tuple(sorted({numbers[name] for name in names})))


def _count(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Count, by label, rows that have it and get it, that get it, and that have it."""
    answered, right = logits[..., 1] > logits[..., 0], targets == 1
    return (answered & right).sum(0), answered.sum(0), right.sum(0)


@register_metric("micro_f1", kind="multi_label")
def _micro_f1(logits: Tensor, targets: Tensor, classes: int) -> float:
    del classes
    both, answered, right = (int(counts.sum()) for counts in _count(logits, targets))
    return 2 * both / max(1, answered + right)


@register_metric("macro_f1", kind="multi_label")
def _macro_f1(logits: Tensor, targets: Tensor, classes: int) -> float:
    del classes
    both, answered, right = _count(logits, targets)
    present = answered + right > 0
    if not bool(present.any()):
        return 0.0
    return float((2 * both[present].double() / (answered + right)[present]).mean())


@register_metric("subset_accuracy", kind="multi_label")
def _subset_accuracy(logits: Tensor, targets: Tensor, classes: int) -> float:
    del classes
    wrong = (logits[..., 1] > logits[..., 0]) != (targets == 1)
    return float((~wrong.any(1)).double().mean())
