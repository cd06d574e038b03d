"""Tasks on which a tiny encoder's outcome is known: words divided in two, differently in each."""

from __future__ import annotations

import random

from tiny_models import LABEL_WORDS

from cl_graft.tasks import TextTask
from cl_graft.tasks.task import Row

__all__ = ["word_task"]

_WORDS = LABEL_WORDS[:16]


def word_task(name: str, *, seed: int, rows: int = 96) -> TextTask:
    """Make a task whose classes are the two halves in which `seed` divides sixteen words.

    A text is four words of one half. Two such tasks agree on as many words as they do not.
    """
    draws = random.Random(seed)
    words = draws.sample(_WORDS, len(_WORDS))
    halves = words[: len(words) // 2], words[len(words) // 2 :]

    def draw(count: int) -> tuple[Row, ...]:
        return tuple(
            Row(" ".join(draws.choices(halves[number % 2], k=4)), None, number % 2)
            for number in range(count)
        )

    return TextTask(name, ("first", "second"), draw(rows), draw(32), draw(128))
