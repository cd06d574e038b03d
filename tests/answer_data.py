"""Small tasks of text to text, written to folders."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from answer_tasks import write_task

_WORDS = ("oil", "rain", "phone", "team", "book", "river bank", "chip", "girl")


def answer_folder(path: Path, form: str, *, train: int = 16, dev: int = 4, test: int = 6) -> Path:
    """Write a task of two words and return its folder.

    Args:
        path: The folder.
        form: ``"instruction"`` (which word came last, two right answers), ``"input"`` (which came
            first) or ``"messages"`` (a chat with a system message).
        train: Training rows; `dev` and `test` likewise.
    """
    sizes = {"train": train, "dev": dev, "test": test}
    splits = {
        split: make_answers(form, rows, seed=seed)
        for seed, (split, rows) in enumerate(sizes.items())
    }
    return write_task(path, splits)


def make_answers(form: str, count: int, *, seed: int = 0) -> list[dict[str, Any]]:
    """Return records of two words; `form` as for `answer_folder`."""
    draw = random.Random(seed)
    return [_ROWS[form](*draw.sample(_WORDS, 2)) for _ in range(count)]


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


_ROWS: dict[str, Callable[[str, str], dict[str, Any]]] = {
    "instruction": _instruction,
    "input": _input,
    "messages": _messages,
}
