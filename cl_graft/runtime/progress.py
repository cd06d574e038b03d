"""Progress of an experiment: the steps that are reported while it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

PHASE_NAMES = {
    "dense": "dense run",
    "choose": "dense runs of the grid",
    "localize": "localization",
    "train": "training",
    "evaluate": "evaluation",
    "reused": "was done before",
}
"""Phases as they are shown, by the name in steps and results."""


@dataclass(frozen=True)
class Step:
    """One step of a long phase was done.

    Attributes:
        phase: One of `PHASE_NAMES`; ``"note"`` before a run starts; ``"over"`` when a job of
            several that run at once is done, with the number of jobs that are.
        step: Steps done, from 1.
        steps: Steps of the phase.
        task: Task that is learned, or after which tasks are evaluated; empty where there is none.
        strategy: Name of the strategy that runs.
        seed: Seed of the run.
        note: Sentence to show, in ``"note"``.
        job: Name of the job, in ``"over"``.
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


def rename_steps(progress: Progress, name: Callable[[str], str]) -> Progress:
    """Return `progress` with steps under another name than their strategy's."""

    def report(step: Step) -> None:
        progress(replace(step, strategy=name(step.strategy)))

    return report


def silent(step: Step) -> None:
    """Show nothing."""
    del step
