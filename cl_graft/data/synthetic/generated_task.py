"""Generated tasks, and the rows that are drawn of them.

Row `i` depends on the task, the split, the seed and the rows before it, never on how many rows
were asked for: more rows extend fewer. Which split a text may appear in is a property of the text
itself (a bucket of its hash), so no two splits share a first text, whatever their seeds.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cl_graft.errors import InputError
from cl_graft.kinds.rows import Row
from cl_graft.runtime.seeding import derive

SPLITS: Mapping[str, range] = {"test": range(0, 2), "dev": range(2, 3), "train": range(3, 10)}
"""The buckets, of ten, that each split takes its texts from."""

_ATTEMPTS = 2_000


@dataclass(frozen=True)
class GeneratedTask:
    """A task whose rows come from a grammar.

    Attributes:
        name: The task's key in `GENERATED`.
        label_names: One name for each class; a row's label is an index into them.
        description: Sentence that says what decides the label.
        make: Writes a row of the given label. It draws from the generator it is handed and from
            nothing else.
    """

    name: str
    label_names: tuple[str, ...]
    description: str
    make: Callable[[random.Random, int], Row]


def draw(task: GeneratedTask, *, split: str, rows: int, seed: int) -> tuple[Row, ...]:
    """Draw the first `rows` rows of a split, all different, classes balanced.

    Every run of as many rows as there are classes holds each class once, in an order of its own.

    Args:
        task: The task.
        split: "train", "dev" or "test".
        rows: Number of rows, at least 0.
        seed: Any integer; the same seed gives the same rows on every machine.

    Raises:
        InputError: If the split is unknown, `rows` is negative, or the grammar has no further
            row of a class to give.

    Examples:
        >>> from cl_graft.data.synthetic import GENERATED
        >>> [row.label for row in draw(GENERATED["sentiment"], split="test", rows=4, seed=0)]
        [0, 1, 1, 0]
    """
    if split not in SPLITS:
        raise InputError(f"split must be one of {', '.join(sorted(SPLITS))}, got {split!r}")
    if rows < 0:
        raise InputError(f"rows must be at least 0, got {rows}")
    classes = len(task.label_names)
    order = list(range(classes))
    drawn: dict[tuple[str, str | None], Row] = {}
    for index in range(rows):
        rng = random.Random(derive(seed, "generated", task.name, split, index))
        if index % classes == 0:
            rng.shuffle(order)
        row = _draw_row(task, order[index % classes], split=split, taken=drawn, rng=rng)
        drawn[row.text, row.text_pair] = row
    return tuple(drawn.values())


def _draw_row(
    task: GeneratedTask,
    label: int,
    *,
    split: str,
    taken: Mapping[tuple[str, str | None], Row],
    rng: random.Random,
) -> Row:
    for _ in range(_ATTEMPTS):
        row = task.make(rng, label)
        in_split = derive(0, "split", row.text.lower()) % 10 in SPLITS[split]
        if in_split and (row.text, row.text_pair) not in taken:
            return row
    raise InputError(
        f"generated task {task.name!r} has no further {split} row of class "
        f"{task.label_names[label]!r} after {len(taken):,} rows: ask for fewer"
    )
