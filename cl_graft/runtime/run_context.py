"""The context that a run hands to its phases: cache, checkpoints and callbacks."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

import cl_graft
from cl_graft.runtime.checkpoints import NO_CHECKPOINTS, Checkpoints


class Cache(Protocol):
    """Results of long computations, by a key that all their inputs determine."""

    def get(self, key: str) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Return the tensors and values of a key; None if there are none."""

    def put(self, key: str, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Keep tensors, and values that JSON can hold, under a key."""


class _NoCache:
    """Keeps nothing."""

    def get(self, key: str) -> None:
        del key

    def put(self, key: str, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        del key, tensors, values


NO_CACHE: Cache = _NoCache()
"""The cache of a run that keeps nothing."""


def cache_key(phase: str, identity: str, recipe: Mapping[str, Any], seed: int) -> str:
    """Return the key of a phase's result: the phase's name and a hash of all its inputs.

    The version of this package is one of the inputs: another version may compute another result.
    """
    text = json.dumps([cl_graft.__version__, phase, identity, recipe, seed], sort_keys=True)
    return f"{phase}-{hashlib.sha256(text.encode()).hexdigest()[:40]}"


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
