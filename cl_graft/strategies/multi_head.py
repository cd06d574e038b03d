"""A `TaskModel` under Avalanche: a head a task label, or one for all, by the batch's labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from avalanche.models import MultiTaskModule
from torch import Tensor, nn

from cl_graft.kinds.text_task import make_task_head
from cl_graft.models import Loaded, TaskModel
from cl_graft.runtime.seeding import derive
from cl_graft.strategies.benchmark import TextStream

_ABSENT = -1e4
"""Logit of a class that a task does not have: its probability is exactly 0 in fp32."""


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
    return nn.functional.pad(logits, (0, missing), value=_ABSENT) if missing > 0 else logits


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
