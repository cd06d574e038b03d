"""Small tagging data sets whose words decide their tags, written as JSON lines."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from answer_tasks import write_task

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
