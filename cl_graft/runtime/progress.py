"""Progress of an experiment: the steps that are reported while it runs.

The library only calls a function with each step; the command line decides what is shown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

__all__ = ["Progress", "Step", "reported_as", "silent"]


@dataclass(frozen=True)
class Step:
    """One step of a long phase was done.

    Attributes:
        phase: ``"dense"`` or ``"warm-up"``, ``"localize"``, ``"train"`` (the strategy's own loop)
            or ``"evaluate"``; ``"choose"`` for the dense runs of a grid; ``"memory"``, once,
            before a run starts; ``"reused"``, once, for a cell that was finished before;
            ``"over"``, once, at the end of a job of several that run at once.
        step: Steps done, from 1.
        steps: Steps of the phase.
        task: The task that is learned; after which one is evaluated; empty where there is none.
        strategy: The strategy that runs.
        seed: Its seed.
        note: What is to be told, in ``"memory"``.
        job: Of several jobs that run at once, which; empty where one runs after the other.
    """

    phase: str
    step: int
    steps: int
    task: str
    strategy: str
    seed: int
    note: str = ""
    job: str = ""


Progress = Callable[[Step], None]
"""Called after every step."""


def reported_as(progress: Progress, name: Callable[[str], str]) -> Progress:
    """Return `progress` with steps under another name than their strategy's.

    Args:
        progress: What is called.
        name: The strategy's name to the other one.
    """

    def report(step: Step) -> None:
        progress(replace(step, strategy=name(step.strategy)))

    return report


def silent(step: Step) -> None:
    """Show nothing."""
    del step
