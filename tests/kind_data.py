"""Small data of each kind of task: rows, tasks in memory, and a folder of all."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from answer_tasks import make_numbers, make_questions, write_task

from cl_graft.kinds import TextTask
from cl_graft.kinds.multi_label import LabelledRow

_WORDS = {
    "delivery": "a late parcel",
    "damage": "a torn box",
    "payment": "a wrong bill",
    "staff": "a rude answer",
    "web": "a dead link",
}


def make_labels(count: int, *, seed: int = 0, labels: int = 3) -> list[dict[str, Any]]:
    """Return records of complaints about none, one or two of up to five things."""
    names = sorted(list(_WORDS)[:labels])
    sets = [[], *([name] for name in names), *([a, b] for a in names for b in names if a < b)]
    return [
        {
            "text": f"Number {seed + n} is about {' and '.join(map(_WORDS.get, own)) or 'nothing'}",
            "label_list": own,
        }
        for n in range(count)
        for own in [sets[(n + 1) % len(sets)]]
    ]


def labels_task(count: int = 8, **settings: Any) -> TextTask:
    """Return a task of several labels in memory."""
    names = tuple(sorted(list(_WORDS)[:3]))
    rows = [
        LabelledRow(one["text"], None, 0, tuple(map(names.index, one["label_list"])))
        for one in make_labels(3 * count)
    ]
    splits = rows[:count], rows[count : 2 * count], rows[2 * count :]
    values = {"metric": "micro_f1", "kind": "multi_label", **settings}
    return TextTask("complaints", names, *map(tuple, splits), **values)


_SPANS = {
    "person": (["minister"], ["president"], ["teacher"], ["Lily"], ["little", "girl"]),
    "place": (["river"], ["town"], ["small", "town"], ["mountains"], ["country"]),
}
_SENTENCES = (
    ("{person} met {person} on Monday", "meet"),
    ("{person} will travel to the {place}", "travel"),
    ("they live near the {place}", "travel"),
    ("the book is by {person}", "meet"),
    ("nobody is outside today", "meet"),
)


def tagged_records(count: int, *, intents: bool = False, seed: int = 0) -> list[dict[str, Any]]:
    """Make records with words and BIO tags, and a label where rows have intents."""
    drawn = random.Random(seed)
    made = []
    for number in range(count):
        sentence, intent = _SENTENCES[number % len(_SENTENCES)]
        tokens: list[str] = []
        tags: list[str] = []
        for part in sentence.split():
            kind = part.strip("{}")
            words = drawn.choice(_SPANS[kind]) if kind in _SPANS else [part]
            marks = [f"B-{kind}", f"I-{kind}"] if kind in _SPANS else ["O"]
            tokens += words
            tags += marks[: len(words)]
        made.append({"tokens": tokens, "tags": tags, **({"label": intent} if intents else {})})
    return made


def tagged_folder(folder: Path, *, intents: bool = False, train: int = 40, test: int = 20) -> Path:
    """Write a data set with a train, a dev and a test file to a folder and return it."""
    sizes = {"train": train, "dev": 15, "test": test}
    splits = {
        split: tagged_records(count, intents=intents, seed=seed)
        for seed, (split, count) in enumerate(sizes.items())
    }
    return write_task(folder, splits)


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
