"""Long streams of known similarity: the same words, divided in two by every task.

`shared-S-N` and `opposed-S-N` are task N of a stream in which the share S (in per cent) of 64 words
is common to all tasks; each task divides the other words in its own way. In a *shared* stream the
common words lie on the same sides in all tasks, so that what one task learns serves the next. In an
*opposed* stream odd tasks have them the other way round. A text is a handful of words of one side,
and its class says which. With S = 0 two tasks agree on as many words as they do not.
"""

from __future__ import annotations

import random
import re
from functools import lru_cache

from cl_graft.data.synthetic.generated_task import GeneratedTask
from cl_graft.errors import InputError
from cl_graft.kinds.rows import Row
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
_LABELS = ("first", "second")
_WORDS_A_TEXT = 5
_NAME = re.compile(r"(shared|opposed)-(100|[1-9]?[0-9])-(0|[1-9][0-9]{0,3})")
_RANGE = re.compile(r"((?:shared|opposed)-[0-9]+-)([0-9]{1,4})\.\.([0-9]{1,4})")


@lru_cache(maxsize=1024)
def find_divided_task(name: str) -> GeneratedTask | None:
    """Return the task of a name; None if it is no name of such a task."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    kind, share, number = found[1], int(found[2]), int(found[3])
    sides = _divide_words(share, number, turned=kind == "opposed" and number % 2 == 1)

    def make(rng: random.Random, label: int) -> Row:
        return Row(" ".join(rng.choices(sides[label], k=_WORDS_A_TEXT)), None, label)

    return GeneratedTask(
        name=name,
        label_names=_LABELS,
        description=f"On which side of division {number} its words lie, {share} % of which are "
        f"common to the stream{' and change sides with every task' if kind == 'opposed' else ''}.",
        make=make,
    )


def expand_range(name: str) -> list[str]:
    """Return the names that a range such as ``"shared-50-0..99"`` stands for; others as they are.

    Raises:
        InputError: If a range ends before it begins.

    Examples:
        >>> expand_range("shared-50-0..2")
        ['shared-50-0', 'shared-50-1', 'shared-50-2']
    """
    found = _RANGE.fullmatch(name)
    if found is None:
        return [name]
    first, last = int(found[2]), int(found[3])
    if last < first:
        raise InputError(f"{name}: a range of tasks goes up, from {first} to {last} it does not")
    return [f"{found[1]}{number}" for number in range(first, last + 1)]


def _divide_words(share: int, number: int, *, turned: bool) -> tuple[list[str], list[str]]:
    """Return the words of both sides, as many on each."""
    order = random.Random(derive(0, "divided")).sample(_WORDS, len(_WORDS))
    common = 2 * round(share / 100 * len(_WORDS) / 2)
    own = order[common:]
    random.Random(derive(0, "divided", number)).shuffle(own)
    half = len(own) // 2
    common_sides = order[:common:2], order[1:common:2]
    if turned:
        common_sides = common_sides[::-1]
    return [*common_sides[0], *own[:half]], [*common_sides[1], *own[half:]]
