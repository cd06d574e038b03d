"""Task labels: which task an experience belongs to, and what to say where nothing tells.

Grafting answers every task by its own entry, so it has to know the task, in training and in
evaluation. Avalanche's class-incremental benchmarks have no labels, or the label 0 throughout.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Literal

from cl_graft.strategies.heads import has_task_heads

__all__ = ["TaskLabels", "UnlabelledStream", "has_labels", "label_of"]

TaskLabels = Literal["stream", "experience"]
"""Where task labels come from: the stream's own, or the index of the experience."""

_HOW = (
    "Make the benchmark with labels: SplitMNIST(..., return_task_id=True), nc_benchmark(..., "
    "task_labels=True), or of any other one benchmark = task_incremental_benchmark(benchmark, "
    'reset_task_labels=True). Or let the index of an experience be its label: task_labels="'
    'experience" in GraftingPlugin or GraftingContinual'
)


def label_of(experience: Any, task_labels: TaskLabels = "stream") -> int | None:
    """Return the label of an experience's task; None where a stream has none.

    Raises:
        ValueError: If the experience holds several tasks.
    """
    if task_labels == "experience":
        return int(experience.logging().current_experience)
    labels = {int(label) for label in getattr(experience, "task_labels", ())}
    if len(labels) > 1:
        raise ValueError(
            f"an experience holds tasks {sorted(labels)}; grafting learns one task at a time"
        )
    return labels.pop() if labels else None


def has_labels(strategy: Any, task_labels: TaskLabels) -> bool:
    """Tell whether the strategy's experiences can be told apart by their labels.

    Avalanche's older benchmarks give every experience the label 0 where they mean "no labels": one
    label in a stream of several experiences, and a model without task heads.

    Raises:
        ValueError: If indices are to be labels, and the model answers by others.
    """
    own = label_of(strategy.experience)
    if task_labels == "experience":
        index = label_of(strategy.experience, task_labels)
        if has_task_heads(strategy.model) and own != index:
            raise ValueError(
                f"the model answers by the stream's task labels, and experience {index} has "
                f"{'none' if own is None else f'the label {own}'}: task_labels='experience' is for "
                "models without task heads; make the benchmark with labels for this one"
            )
        return True
    if own is None or has_task_heads(strategy.model):
        return own is not None
    stream = strategy.experience.origin_stream
    if stream is None or len(stream) < 2:
        return True
    return len({int(label) for experience in stream for label in experience.task_labels}) > 1


class UnlabelledStream:
    """What to say of a stream without task labels: at its start, and when it is forgotten."""

    def __init__(self) -> None:
        self._best: dict[str, float] = {}
        self._said: set[str] = set()

    def warn(self) -> None:
        """Say once that nothing is protected."""
        self._say(
            "the stream has no task labels: grafting needs them to keep tasks apart, so this "
            f"trains like Naive and nothing is protected from forgetting. {_HOW}"
        )

    def check_forgetting(self, metrics: Mapping[str, Any]) -> None:
        """Say once that an experience is forgotten, by the accuracies that were last published."""
        if not self._said:
            return
        for name, value in metrics.items():
            if not name.startswith(("Top1_Acc_Exp/eval_phase", "Score/eval_phase")):
                continue
            best = self._best[name] = max(self._best.get(name, 0.0), float(value))
            if best > 0 and value <= 0:
                where = name.split("/", 2)[2]
                self._say(
                    f"all is forgotten that was learned of {where}: {best:.2f} fell to 0. The "
                    f"stream has no task labels, so nothing is protected. {_HOW}",
                    kind="forgotten",
                )

    def _say(self, text: str, *, kind: str = "unprotected") -> None:
        if kind not in self._said:
            self._said.add(kind)
            warnings.warn(text, stacklevel=3)
