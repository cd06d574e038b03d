"""How an experiment says where it stands; the library itself shows nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Progress", "Step", "silent"]


@dataclass(frozen=True)
class Step:
    """One step of a long phase was done.

    Attributes:
        phase: ``"dense"`` or ``"warm-up"``, ``"localize"``, ``"train"`` (the strategy's own loop)
            or ``"evaluate"``; ``"choose"`` for the dense runs of a grid; ``"reused"``, once, for
            a cell that was finished before.
        step: Steps done, from 1.
        steps: Steps of the phase.
        task: The task that is learned; after which one is evaluated; empty for ``"reused"``.
        strategy: The strategy that runs.
        seed: Its seed.
    """

    phase: str
    step: int
    steps: int
    task: str
    strategy: str
    seed: int


Progress = Callable[[Step], None]
"""Called after every step."""


def silent(step: Step) -> None:
    """Show nothing."""
    del step
