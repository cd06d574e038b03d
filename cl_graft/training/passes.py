"""Counts of the rows that went through a model, by which costs of methods are compared."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Passes:
    """Rows that went through the model.

    Attributes:
        forward_backward: Rows whose loss was computed and differentiated.
        forward: Rows whose logits or features alone were computed.

    Examples:
        >>> Passes(forward_backward=8) + Passes(forward=2)
        Passes(forward_backward=8, forward=2)
    """

    forward_backward: int = 0
    forward: int = 0

    def __add__(self, other: Passes) -> Passes:
        return Passes(self.forward_backward + other.forward_backward, self.forward + other.forward)


def total_passes(parts: Iterable[Passes]) -> Passes:
    """Add up the passes of several phases."""
    return sum(parts, Passes())
