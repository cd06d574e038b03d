"""Small tasks of text to text, written to folders."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from answer_tasks import write_task

_WORDS = ("oil", "rain", "phone", "team", "book", "river bank", "chip", "girl")


def answer_folder(path: Path, form: str, *, train: int = 16, dev: int = 4, test: int = 6) -> Path:
    """Write a task of two words and return its folder.

    The form is ``"instruction"`` (which word came last, two right answers), ``"input"`` (which
    came first) or ``"messages"`` (a chat with a system message).
    """
    splits = {}
    for seed, (split, rows) in enumerate({"train": train, "dev": dev, "test": test}.items()):
        draw = random.Random(seed)
        splits[split] = [_ROWS[form](*draw.sample(_WORDS, 2)) for _ in range(rows)]
    return write_task(path, splits)


def _instruction(first: str, second: str) -> dict[str, Any]:
    return {
        "instruction": "Which came last?",
        "input": f"The {first} and the {second}{' again' * (len(first) % 3)}",
        "target": [second, f"the {second}"],
    }


def _input(first: str, second: str) -> dict[str, Any]:
    return {"input": f"The {first} and the {second}", "target": first}


def _messages(first: str, second: str) -> dict[str, Any]:
    said = (("system", "Be short."), ("user", f"Say {first} or {second}"), ("assistant", first))
    return {"messages": [{"role": role, "content": content} for role, content in said]}


_ROWS = {"instruction": _instruction, "input": _input, "messages": _messages}
