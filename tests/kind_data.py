"""A tiny data set of each kind of task, in the layout of a data folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from answer_tasks import make_numbers, make_questions, write_task
from label_sets import make_labels
from tagged_data import tagged_records


def _label(count: int, *, seed: int = 0) -> list[dict[str, Any]]:
    labels = (("good", "positive"), ("bad", "negative"))
    return [
        {"text": f"the food was {word} on day {seed + number}", "label": label}
        for number in range(count)
        for word, label in [labels[number % 2]]
    ]


KINDS_OF_TASKS: Mapping[str, tuple[str, Callable[..., list[dict[str, Any]]]]] = {
    "classification": ("opinions", _label),
    "regression": ("numbers", make_numbers),
    "tagging": ("names", partial(tagged_records, intents=True)),
    "extractive_qa": ("questions", make_questions),
    "multi_label": ("complaints", make_labels),
}
"""Name of the task, and what makes its records, by kind."""


def write_kinds(folder: Path, *, train: int = 40, test: int = 16) -> Path:
    """Write the data of each kind to `folder`/NAME, and return `folder`."""
    for kind, (name, make) in KINDS_OF_TASKS.items():
        splits = {"train": make(train, seed=1), "test": make(test, seed=1000)}
        write_task(folder / name, splits, **({"label_names": []} if kind == "regression" else {}))
    return folder
