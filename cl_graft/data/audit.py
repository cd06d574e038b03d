"""The audit of a task's rows: repeated ones, contradictions, and test rows that were learned."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from cl_graft.kinds.text_task import TextTask


def audit(task: TextTask) -> dict[str, int]:
    """Count suspicious rows of a task."""
    answers: dict[tuple[Any, ...], set[str]] = {}
    for row in task.train:
        answers.setdefault(row.inputs, set()).add(str(row.content))
    seen = {*answers, *(row.inputs for row in task.dev)}
    one_answer = task.own_kind.one_label
    return {
        "train_test_overlap": sum(row.inputs in seen for row in task.test),
        "train_dev_overlap": sum(row.inputs in answers for row in task.dev),
        "duplicates": len(task.train) - sum(map(len, answers.values())),
        "conflicts": sum(one_answer and len(answers[row.inputs]) > 1 for row in task.train),
    }


def find_shared_rows(tasks: Sequence[TextTask]) -> list[tuple[str, ...]]:
    """Name the other tasks of a stream in whose train or dev the test rows of each task stand."""
    learned: dict[tuple[Any, ...], set[int]] = {}
    for number, task in enumerate(tasks):
        for row in (*task.train, *task.dev):
            learned.setdefault(row.inputs, set()).add(number)
    notes: list[tuple[str, ...]] = []
    for number, task in enumerate(tasks):
        counts = Counter(
            other for row in task.test for other in learned.get(row.inputs, ()) if other != number
        )
        notes.append(
            tuple(
                f"{count:,} of its {len(task.test):,} test rows also stand in train or dev of "
                f"{tasks[other].name}"
                for other, count in sorted(counts.items())
            )
        )
    return notes


def describe_findings(task: TextTask, counts: Mapping[str, int]) -> list[str]:
    """Say in a sentence each what `audit` counted, where it is anything."""
    train, dev, test = len(task.train), len(task.dev), len(task.test)
    said = {
        "train_test_overlap": f"of {test:,} test rows also stand in train or dev; its scores will "
        "look better than they are",
        "train_dev_overlap": f"of {dev:,} dev rows also stand in train; what is chosen on dev fits "
        "train too well",
        "duplicates": f"of {train:,} training rows repeat an earlier one",
        "conflicts": f"of {train:,} training rows have texts that also stand in train with another "
        "label",
    }
    return [f"{counts[name]:,} {sentence}" for name, sentence in said.items() if counts[name]]
