"""Small tasks of answers in passages and of numbers: rows in memory, and as files."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cl_graft.kinds import KINDS, Row, TextTask

_PLACES = ("the street", "the beach", "the park", "the small town", "the mountains")
_PEOPLE = ("a man", "a woman", "a teacher", "the minister", "the president", "a little girl")
_WORDS = ("warm", "funny", "moving", "slow", "empty", "dull", "cold", "small")


def make_questions(count: int, *, seed: int = 0) -> list[dict[str, Any]]:
    """Return records of questions about places, each with a passage of three sentences."""
    draw = random.Random(seed)
    records = []
    for _ in range(count):
        people = draw.sample(_PEOPLE, 3)
        places = [draw.choice(_PLACES) for _ in people]
        parts = [f"{who} is walking in {where}" for who, where in zip(people, places, strict=True)]
        passage = ". ".join(parts) + "."
        asked = draw.randrange(3)
        start = passage.index(parts[asked]) + parts[asked].index(places[asked])
        records.append(
            {
                "question": f"Where is {people[asked]}?",
                "context": passage,
                "answers": [{"text": places[asked], "start": start}],
            }
        )
    return records


def make_numbers(count: int, *, seed: int = 0) -> list[dict[str, Any]]:
    """Return records of texts whose number is the share of their cheerful words, times 5."""
    draw = random.Random(seed)
    records = []
    for _ in range(count):
        words = draw.sample(_WORDS, 4)
        score = 5 * sum(_WORDS.index(word) < 3 for word in words) / 4
        records.append({"text": f"It was {', '.join(words)}.", "label": score})
    return records


def question_task(count: int = 8, **settings: Any) -> TextTask:
    """Return a task of questions in memory."""
    rows = [KINDS.find("extractive_qa").read(row, "made") for row in make_questions(3 * count)]
    splits = rows[:count], rows[count : 2 * count], rows[2 * count :]
    values = {"metric": "answer_f1", "kind": "extractive_qa", "max_length": 64, **settings}
    return TextTask("places", (), *map(tuple, splits), **values)


def number_task(count: int = 8, **settings: Any) -> TextTask:
    """Return a regression in memory."""
    rows = [Row(one["text"], None, one["label"]) for one in make_numbers(3 * count)]
    splits = rows[:count], rows[count : 2 * count], rows[2 * count :]
    return TextTask("cheer", (), *map(tuple, splits), **{"metric": "pearson", **settings})


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    """Write rows as JSON lines, in a folder that need not be there, and return the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def write_task(
    folder: Path, splits: Mapping[str, Iterable[Mapping[str, Any]]], **meta: Any
) -> Path:
    """Write a task as a folder of JSON lines, with a `meta.json` if there is any, and return it."""
    for split, rows in splits.items():
        write_rows(folder / f"{split}.jsonl", rows)
    if meta:
        (folder / "meta.json").write_text(json.dumps(meta))
    return folder


def write_answer_tasks(folder: Path, *, rows: int = 40) -> list[str]:
    """Write the tasks `places`, of questions, and `cheer`, of numbers; returns their folders."""
    half = rows + rows // 2
    questions, numbers = (
        {"train": made[:rows], "dev": made[rows:half], "test": made[half:]}
        for made in (make_questions(2 * rows), make_numbers(2 * rows))
    )
    places = write_task(folder / "places", questions)
    return [str(places), str(write_task(folder / "cheer", numbers, label_names=[]))]
