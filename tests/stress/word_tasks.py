"""Tasks that divide 64 words in two, each in a way of its own, for tests and for long streams.

A text is five words of one side, and its class says which. Of two tasks, `share` of the words lie
on the same sides, and half of the others by chance.
"""

from __future__ import annotations

import atexit
import json
import random
import shutil
import tempfile
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from cl_graft.runtime.seeding import derive

_WORDS = (
    "film", "warm", "story", "sisters", "sea", "dull", "scene", "audience", "slow", "picture",
    "actors", "writing", "phone", "small", "light", "battery", "days", "screen", "week", "shop",
    "letters", "minister", "president", "trade", "oil", "prices", "war", "team", "match", "goals",
    "minutes", "rain", "shares", "company", "percent", "profits", "chip", "computers", "energy",
    "book", "teacher", "town", "mountains", "river", "country", "people", "man", "guitar", "street",
    "woman", "red", "dress", "dog", "children", "beach", "cold", "weather", "north", "home",
    "answer", "sentence", "time", "girl", "park",
)  # fmt: skip
_ROWS = {"train": 256, "dev": 32, "test": 256}


def write_word_tasks(folder: Path, numbers: Iterable[int], *, share: float = 0.0) -> Path:
    """Write the tasks ``words-0``, ``words-1`` and so on of some numbers to a folder of data."""
    for number in numbers:
        task = folder / f"words-{number}"
        task.mkdir(parents=True, exist_ok=True)
        sides = _divide(share, number)
        for split, rows in _ROWS.items():
            draw = random.Random(f"{share} {number} {split}")
            lines = (
                json.dumps({"text": " ".join(draw.choices(side, k=5)), "label": label})
                for _ in range(rows // 2)
                for label, side in zip(("first", "second"), sides, strict=True)
            )
            (task / f"{split}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


@lru_cache
def word_tasks() -> str:
    """Return a folder with six tasks that have no words in common, for as long as this process."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return str(write_word_tasks(folder, range(6)))


def _divide(share: float, number: int) -> tuple[list[str], list[str]]:
    order = random.Random(derive(0, "divided")).sample(_WORDS, len(_WORDS))
    common = 2 * round(share * len(_WORDS) / 2)
    others = order[common:]
    random.Random(derive(0, "divided", number)).shuffle(others)
    half = len(others) // 2
    return [*order[:common:2], *others[:half]], [*order[1:common:2], *others[half:]]
