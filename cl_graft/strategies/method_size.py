"""Size: what of a strategy can be made smaller or larger, and the bytes that a task then adds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cl_graft.models import TaskModel

__all__ = ["Room", "Size"]


@dataclass(frozen=True, eq=False)
class Room:
    """What the bytes of a task depend on beside a strategy's size.

    Attributes:
        model: The model.
        tasks: Tasks of the stream.
        classes: Of the task that has most.
        length: Tokens a row.
    """

    model: TaskModel
    tasks: int
    classes: int
    length: int

    @property
    def row(self) -> int:
        """Bytes of a row of text as it is held: two 64-bit integers a token."""
        return 16 * self.length


@dataclass(frozen=True)
class Size:
    """The bytes that a task adds beside its head, as the mean over the stream.

    Attributes:
        bytes: From room and value to bytes; they grow with the value.
        setting: The setting of the strategy's own that says how large it is, a whole number; empty
            if there is none, and the value is 0.
        most: The largest value; None if there is none.
    """

    bytes: Callable[[Room, int], float]
    setting: str = ""
    most: Callable[[Room], int] | None = None
