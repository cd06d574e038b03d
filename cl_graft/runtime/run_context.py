"""The context that a run hands to its phases: cache, checkpoints and callbacks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cl_graft.runtime.cache import NO_CACHE, Cache
from cl_graft.runtime.checkpoints import NO_CHECKPOINTS, Checkpoints

PhaseProgress = Callable[[str, int, int], None]
"""Called as (phase, step, steps) while a phase runs."""

Measure = Callable[[str, str, int, float], None]
"""Called as (phase, name, step, value) with a loss or a dev score, at a step from 1."""


def ignore_progress(phase: str, step: int, steps: int) -> None:
    """Report nothing."""


def ignore_measurement(phase: str, name: str, step: int, value: float) -> None:
    """Ignore a measurement."""


@dataclass(frozen=True, eq=False)
class RunContext:
    """Context of dense runs and localizations; by default nothing is kept or told.

    Attributes:
        cache: Cache of the outcomes of phases.
        checkpoints: Checkpoints that an interrupted phase is resumed from.
        progress: Called after every step of a phase.
        measure: Called with every step's loss and with dev scores, also of steps that were taken
            before, by an interrupted run or the one that the cache keeps.
    """

    cache: Cache = NO_CACHE
    checkpoints: Checkpoints = NO_CHECKPOINTS
    progress: PhaseProgress = ignore_progress
    measure: Measure = ignore_measurement

    @classmethod
    def of(
        cls,
        cache: Cache | None = None,
        checkpoints: Checkpoints | None = None,
        progress: PhaseProgress | None = None,
    ) -> RunContext:
        """Make a context of what was given; None keeps or tells nothing."""
        given = {"cache": cache, "checkpoints": checkpoints, "progress": progress}
        return cls(**{name: part for name, part in given.items() if part is not None})


ALONE = RunContext()
"""The context of a phase outside of a run."""
