"""What a generated task is: a name, its labels and a grammar that writes one row.

The rows of these tasks are written by grammars that belong to this package, not collected from
people: they serve demonstrations and tests, and accuracy on them says nothing about real text.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from cl_graft.data.text_task import Row

__all__ = ["GeneratedTask"]


@dataclass(frozen=True)
class GeneratedTask:
    """A task whose rows come from a grammar.

    Attributes:
        name: The task's key in `GENERATED`.
        label_names: One name for each class; a row's label is an index into them.
        pair: Whether rows have a second text.
        description: What decides the label, in one sentence.
        make: Writes a row of the given label. It draws from the generator it is handed and from
            nothing else.
        metric: The metric to report; generated classes are balanced, so accuracy serves.
    """

    name: str
    label_names: tuple[str, ...]
    pair: bool
    description: str
    make: Callable[[random.Random, int], Row]
    metric: str = "accuracy"
