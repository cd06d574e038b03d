"""A stream of text tasks as an Avalanche benchmark: experience i is task i, with task label i.

One sample is one LongTensor (2, L): token ids, and 0 for padding, 1 for the first segment, 2 for
the second. Dev and test rows stand in the order of their lengths, the longest first, so that a pass
over them pads little; `EncodedTask.rows` holds their row numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, get_args

import torch
from avalanche.benchmarks import benchmark_from_datasets, with_task_labels
from avalanche.benchmarks.utils import DataAttribute, TaskLabels
from avalanche.benchmarks.utils.classification_dataset import (
    TaskAwareSupervisedClassificationDataset,
)
from avalanche.benchmarks.utils.data_attribute import ConstantSequence
from avalanche.models import MultiTaskModule
from torch import Tensor, nn
from torch.utils.data import TensorDataset, default_collate

from cl_graft.data.encoded_task import EncodedTask, encode_task
from cl_graft.errors import InputError, nearest
from cl_graft.kinds.prompts import Family
from cl_graft.kinds.text_encoding import require_tokenizer
from cl_graft.kinds.text_task import TextTask, make_task_head
from cl_graft.metrics.task_score import NO_TARGET, TaskLoss
from cl_graft.models import Loaded, TaskModel
from cl_graft.models.heads import ABSENT
from cl_graft.runtime.batching import join_rows
from cl_graft.runtime.seeding import derive

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase as Tokenizer


@dataclass(frozen=True, eq=False)
class TextStream:
    """An ordered stream of tasks and the Avalanche benchmark over it.

    Attributes:
        tasks: The encoded tasks; task label i is ``first_label + i``.
        benchmark: Avalanche's benchmark with ``train_stream``, ``valid_stream``, ``test_stream``.
        first_label: Label of the first task; above 0 when a bank grows.
        one_head: Whether all tasks are answered by one head, so that their labels mean the same.
    """

    tasks: tuple[EncodedTask, ...]
    benchmark: Any
    first_label: int = 0
    one_head: bool = False

    def __repr__(self) -> str:
        heads = ", one head" if self.one_head else ""
        return f"TextStream({', '.join(self.names)}{heads})"

    @property
    def origin_stream(self) -> NoReturn:
        """Refuse to be an experience of Avalanche, whose strategies ask it for its stream."""
        raise AttributeError(
            "a TextStream is no experience: train on those of its benchmark.train_stream, and "
            "evaluate its benchmark.test_stream"
        )

    @property
    def names(self) -> list[str]:
        """The tasks' names in order."""
        return [encoded.task.name for encoded in self.tasks]

    @property
    def criterion(self) -> nn.Module:
        """The loss of strategies: cross-entropy, or `TaskLoss` where a task is of another kind."""
        plain = all(encoded.task.kind == "classification" for encoded in self.tasks)
        return nn.CrossEntropyLoss() if plain else TaskLoss()


def text_stream(
    tasks: Sequence[TextTask],
    tokenizer: Tokenizer,
    *,
    family: Family,
    max_length: int | None = None,
    first_label: int = 0,
    one_head: bool = False,
) -> TextStream:
    """Encode tasks and make the Avalanche benchmark over them.

    Args:
        tasks: The tasks in the order of the stream.
        tokenizer: The model's tokenizer.
        family: ``"encoder"``, ``"masked_lm"``, ``"causal_lm"`` or ``"seq2seq_lm"``.
        max_length: Tokens a sample for all tasks; None means the largest of the tasks' own.
        first_label: Task label of the first task.
        one_head: Whether all tasks share one head. They then have the same labels in the same
            order, as `share_labels` and `number_classes` of `cl_graft.data` make them; a task's
            classes are those of its rows.

    Raises:
        InputError: If an argument is of another kind, a prompt does not fit the family, a label
            word has several tokens, or tasks that share a head have other labels or label words.
        ValueError: If there is no task.
    """
    if isinstance(tasks, TextTask | str) or not all(isinstance(task, TextTask) for task in tasks):
        raise InputError(
            f"tasks must be a list of TextTask, as load_task returns them; got {tasks!r:.80}"
        )
    if not tasks:
        raise ValueError("a stream needs at least one task, got none")
    if family not in get_args(Family):
        raise InputError(f"unknown family {family!r}; {nearest(family, get_args(Family))}")
    if max_length is not None and max_length < 1:
        raise InputError(f"max_length must be at least 1, got {max_length}")
    require_tokenizer(tokenizer)
    length = max_length or max(task.max_length for task in tasks)
    encoded = tuple(
        encode_task(task, tokenizer, family=family, max_length=length) for task in tasks
    )
    if one_head:
        _check_head(encoded)
    benchmark: Any = with_task_labels(
        benchmark_from_datasets(
            **{
                name: [
                    _dataset(*task.splits[name], label=first_label + position)
                    for position, task in enumerate(encoded)
                ]
                for name in ("train", "valid", "test")
            }
        )
    )
    for stream in benchmark.streams.values():
        stream.benchmark = benchmark  # or it would be looked for among all objects
        seen: list[int] = []
        for experience, task in zip(stream, encoded, strict=True):
            experience.encoded = task.splits[stream.name]
            experience.scorer = task.scorer
            has_classes = task.task.own_kind.class_axis
            experience.own_columns = task.task.num_outputs if has_classes else None
            classes = list(range(experience.own_columns or 1))
            if one_head:
                classes = sorted({int(label) for label in task.splits["train"][1]})
            experience.classes_in_this_experience = classes
            experience.previous_classes = list(seen)
            seen = sorted({*seen, *classes})
            experience.classes_seen_so_far = list(seen)
            experience.future_classes = []
    return TextStream(encoded, benchmark, first_label, one_head)


def _check_head(tasks: Sequence[EncodedTask]) -> None:
    """Raise an InputError unless one head can answer all tasks."""
    first = tasks[0]
    for task in tasks:
        if not task.task.own_kind.needs_classes:
            raise InputError(
                f"one head for all tasks: {task.task.name!r} is a "
                f"{task.task.kind.replace('_', ' ')} task, and only classes can share a head"
            )
        if task.task.label_names != first.task.label_names:
            raise InputError(
                f"one head for all tasks: the labels of {first.task.name!r} are "
                f"{', '.join(first.task.label_names)}, and those of {task.task.name!r} "
                f"{', '.join(task.task.label_names)}. Number the classes of all tasks together "
                "(class-incremental): text_stream(cl_graft.data.number_classes(tasks), …). Or put "
                "labels that mean the same in one order (domain-incremental): "
                "text_stream(cl_graft.data.share_labels(tasks), …)"
            )
        if task.label_tokens != first.label_tokens:
            raise InputError(
                f"one head for all tasks: the prompts of {first.task.name!r} and "
                f"{task.task.name!r} have other label words"
            )


def _collate(rows: Sequence[Sequence[Any]]) -> list[Any]:
    """Make a batch of rows, whose tasks may have other numbers of answers a row."""
    inputs, targets, *others = zip(*rows, strict=True)
    if isinstance(targets[0], Tensor) and targets[0].ndim:
        targets = tuple(join_rows([target[None] for target in targets], fill=NO_TARGET))
    return [default_collate(list(column)) for column in (inputs, targets, *others)]


def _dataset(inputs: Tensor, targets: Tensor, *, label: int) -> Any:
    # Rows without a class all get class 0, for Avalanche's buffers that are balanced by class.
    labels: Any = targets.tolist() if targets.ndim == 1 else [0] * len(targets)
    return TaskAwareSupervisedClassificationDataset(
        [TensorDataset(inputs, targets)],
        data_attributes=[
            DataAttribute(labels, "targets"),
            TaskLabels(ConstantSequence(label, len(targets))),
        ],
        collate_fn=_collate,
    )


class MultiTaskText(MultiTaskModule):
    """Answer samples of several tasks, each through its own head.

    Logits are as wide as the widest task seen; the columns that a task does not have hold
    ``-1e4``, so neither loss nor prediction sees them.

    Args:
        task_model: The backbone and its heads.
        make_head: Function that makes the head of a task label when Avalanche first meets it.
        one_head: Whether the first head is that of all labels.
    """

    def __init__(
        self,
        task_model: TaskModel,
        make_head: Callable[[int], nn.Module],
        *,
        one_head: bool = False,
    ) -> None:
        super().__init__()
        self.task_model = task_model
        self.one_head = one_head
        self._make_head = make_head

    def adaptation(self, experience: Any) -> None:
        """Add the heads that the experience's task labels need."""
        super().adaptation(experience)
        for label in sorted({int(label) for label in experience.task_labels}):
            heads = self.task_model.heads
            if str(label) not in heads:
                shared = next(iter(heads.values()), None) if self.one_head else None
                head = self._make_head(label) if shared is None else shared
                self.task_model.add_head(label, head)

    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, x: Tensor, task_labels: Tensor | int | None
    ) -> Any:
        """Return logits of shape (n, classes of the widest task), or as a task's `TokenHead` says.

        Without task labels, the logits of every task learned so far, by label.
        """
        if task_labels is None:
            return self.forward_all_tasks(x)
        if isinstance(task_labels, int):
            return self.forward_single_task(x, task_labels)
        labels = task_labels.unique().tolist()
        if len(labels) == 1 or self.one_head:
            return self._answer_widened(x, int(labels[0]))
        parts = [task_labels == label for label in labels]
        answers = [
            self._answer_widened(x[part], int(label))
            for part, label in zip(parts, labels, strict=True)
        ]
        # Of tasks with other numbers of answers a row, 0 stands where a row has no target.
        widest = max(answer.shape[1] for answer in answers)
        out = torch.zeros(len(x), widest, *answers[0].shape[2:], device=x.device)
        for part, answer in zip(parts, answers, strict=True):
            out[part, : answer.shape[1]] = answer
        return out

    def forward_all_tasks(self, x: Tensor) -> dict[int, Tensor]:
        """Return the logits of every task that was trained, by label; of one head, once."""
        labels = sorted(self.known_train_tasks_labels)
        asked = labels[:1] if self.one_head else labels
        return {label: self.forward_single_task(x, label) for label in asked}

    def forward_single_task(self, x: Tensor, task_label: int) -> Tensor:
        """Return the task's own logits, (n, classes of the task)."""
        return self.task_model(x, task_label)

    def _answer_widened(self, x: Tensor, label: int) -> Tensor:
        """Return a task's logits, as wide as those of the widest task where they are of classes."""
        logits = self.forward_single_task(x, label)
        head = self.task_model.heads[str(label)]
        if logits.shape[-1] == 1 or not getattr(head, "has_classes", True):
            return logits
        return widen_logits(logits, self.max_class_label)


def widen_logits(logits: Tensor, classes: int) -> Tensor:
    """Add columns to logits until there are as many as `classes`, for classes that are absent."""
    missing = classes - logits.shape[-1]
    return nn.functional.pad(logits, (0, missing), value=ABSENT) if missing > 0 else logits


def text_model(
    model: Loaded | TaskModel, stream: TextStream, *, seed: int = 0, one_head: bool = False
) -> MultiTaskText:
    """Make the model that Avalanche trains on a stream: a backbone, and a head for every task.

    Args:
        model: The backbone, as `load_model` returns it.
        stream: The tasks.
        seed: Seed of the first values of heads, which depend on it and the task's name alone.
        one_head: Whether all tasks share the head of the first one.
    """
    backbone = model.model if isinstance(model, Loaded) else model

    def make(label: int) -> nn.Module:
        encoded = stream.tasks[label - stream.first_label]
        return make_task_head(
            backbone,
            encoded.task,
            label_tokens=encoded.label_tokens,
            seed=derive(seed, encoded.task.name, "head"),
        )

    return MultiTaskText(backbone, make, one_head=one_head)
