"""Task labels: the task that an experience belongs to, and the entry that it was learned into."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Any

from cl_graft.strategies.heads import has_task_heads
from cl_graft.strategies.strategy import Strategy


def find_label(experience: Any) -> int | None:
    """Return the label of an experience's task; None where a stream has none."""
    labels = {int(label) for label in getattr(experience, "task_labels", ())}
    if len(labels) > 1:
        raise ValueError(
            f"an experience holds tasks {sorted(labels)}; grafting learns one task at a time"
        )
    return labels.pop() if labels else None


def has_labels(strategy: Strategy) -> bool:
    """Tell whether labels tell experiences apart; older benchmarks say 0 where they have none."""
    own = find_label(strategy.experience)
    if own is None or has_task_heads(strategy.model):
        return own is not None
    stream = strategy.experience.origin_stream
    if stream is None or len(stream) < 2:
        return True
    return len({int(label) for experience in stream for label in experience.task_labels}) > 1


def warn_of_no_labels() -> None:
    """Warn that nothing is protected in a stream without task labels."""
    warnings.warn(
        "the stream has no task labels: grafting needs them to keep tasks apart, so this "
        "trains like Naive and nothing is protected from forgetting. Make the benchmark with "
        "labels: SplitMNIST(..., return_task_id=True), nc_benchmark(..., task_labels=True), or of "
        "any other one benchmark = task_incremental_benchmark(benchmark, reset_task_labels=True)",
        stacklevel=3,
    )


class ExperienceEntries:
    """Positions of entries by the number and the task label of their experience.

    Experiences of several benchmarks are told apart by their labels; with one number and one label
    they share the newest entry.
    """

    def __init__(self) -> None:
        self._positions: dict[tuple[int, int], int] = {}
        self._warned = False

    def add(self, experience: Any, *, label: int, position: int) -> None:
        """Remember that an experience was learned into the entry at a position."""
        self._positions[int(experience.current_experience), label] = position

    def find(self, experience: Any, *, label: int) -> int | None:
        """Return the position of the entry; None if the experience was not learned."""
        return self._positions.get((int(experience.current_experience), label))

    def check_label(self, label: int | None) -> None:
        """Warn once, if experiences of an evaluated label are told apart, which it does not do."""
        count = Counter(own for _, own in self._positions)[label]
        if count > 1 and not self._warned:
            self._warned = True
            warnings.warn(
                f"{count} experiences were learned with task label {label}, and a test experience "
                "is answered by its own entry: these answers know the experience of every row, "
                "which the label does not tell. Class-incremental scores must not know it; a "
                "router finds it from the text. Where it is known, give each experience a label "
                "of its own",
                stacklevel=4,
            )
