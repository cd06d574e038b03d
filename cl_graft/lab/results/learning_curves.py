"""Losses and dev scores while a run learns each task, as its file `curves.json` holds them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import mean
from typing import Annotated

from pydantic import Field

from cl_graft.lab.results.task_files import TaskFile

__all__ = ["CURVES", "PhaseCurve", "TaskCurves", "thin_out"]

_POINTS = 30
"""Points of a loss curve at most."""

Points = tuple[tuple[Annotated[int, Field(ge=0, lt=2**63)], float], ...]
"""Steps, from 1, and values."""


@dataclass(frozen=True)
class PhaseCurve:
    """What was measured in one phase of learning a task.

    Attributes:
        loss: Training loss over steps; of many steps the mean over equal stretches, at the last
            step of each.
        dev: Score on dev, a fraction in the task's metric, where it was evaluated.
    """

    loss: Points = ()
    dev: Points = ()


@dataclass(frozen=True)
class TaskCurves:
    """What was measured while a task was learned.

    Attributes:
        train: The strategy's own training; of grafting that of the region.
        dense: The dense run before it, where there is one.
    """

    train: PhaseCurve = field(default_factory=PhaseCurve)
    dense: PhaseCurve = field(default_factory=PhaseCurve)


CURVES = TaskFile("curves.json", TaskCurves)
"""File of a run with what was measured while it learned."""


def thin_out(points: Sequence[tuple[int, float]]) -> Points:
    """Return at most 30 points: means over stretches of as many points, at the last step of each.

    Values have four significant digits.
    """
    size = -(-len(points) // _POINTS) or 1
    stretches = (points[first : first + size] for first in range(0, len(points), size))
    return tuple((own[-1][0], float(f"{mean(v for _, v in own):.4g}")) for own in stretches)
