"""What a claim looks at: the numbers of one experiment, or of several, by method and measure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from cl_graft.laboratory.readings import Summary

__all__ = ["MissingReading", "View"]


class MissingReading(LookupError):
    """A result does not have the number that a claim asks for."""


@dataclass(frozen=True)
class View:
    """Numbers of experiments, all of them or those of one task.

    Attributes:
        rows: The numbers by experiment; the first one is asked where none is named.
        learned: The localizer whose regions the results call learned.
        task: Whose numbers; None means all.
    """

    rows: Mapping[str, Sequence[Summary]]
    learned: str = "learned_mask"
    task: str | None = None

    def __call__(
        self,
        method: str,
        measure: str = "score",
        *,
        x: float | None = None,
        task: str | None = None,
        experiment: str | None = None,
    ) -> float:
        """Return a mean over seeds, and over tasks where the view is not of one.

        Args:
            method: Whose.
            measure: Of what.
            x: Where on the axis: the nearest place, at most 30 % away, as a density of a small
                model is a whole number of coordinates; None means anywhere.
            task: Of which task; None means the view's.
            experiment: Of which experiment; None means the first.

        Raises:
            MissingReading: If there is none.
        """
        own = [r for r in self._of(measure, task=task, experiment=experiment) if r.method == method]
        if x is not None:
            near = min((r.x for r in own if r.x is not None), key=lambda at: abs(at - x), default=0)
            own = [r for r in own if r.x == near and math.isclose(near, x, rel_tol=0.3)]
        found = [row.mean for row in own]
        if not found:
            place = "" if x is None else f" at {x:g}"
            raise MissingReading(f"{measure} of {method}{place}")
        return math.fsum(found) / len(found)

    def curve(self, method: str, measure: str = "score") -> dict[float, float]:
        """Return the means of a method along the axis, from the least place up.

        Raises:
            MissingReading: If there are none.
        """
        places: dict[float, list[float]] = {}
        for row in self._of(measure):
            if row.method == method and row.x is not None:
                places.setdefault(row.x, []).append(row.mean)
        if not places:
            raise MissingReading(f"{measure} of {method}")
        return {x: math.fsum(found) / len(found) for x, found in sorted(places.items())}

    def deviation(self, method: str, measure: str = "score") -> float:
        """Return a standard deviation over seeds, averaged over tasks.

        Raises:
            MissingReading: If there is none, or of one seed only.
        """
        found = [r.deviation for r in self._of(measure) if r.method == method and r.seeds > 1]
        if not found:
            raise MissingReading(f"{measure} of {method} over several seeds")
        return math.fsum(found) / len(found)

    def methods(self, measure: str = "score", *, like: str = "") -> list[str]:
        """Return the methods that have a measure and whose names begin so, in their order."""
        return list(
            dict.fromkeys(row.method for row in self._of(measure) if row.method.startswith(like))
        )

    def average(self, methods: Sequence[str], of: Callable[[str], float]) -> float:
        """Return the mean of a number over methods.

        Raises:
            MissingReading: If there are no methods.
        """
        if not methods:
            raise MissingReading("any number of the methods compared")
        return math.fsum(of(method) for method in methods) / len(methods)

    def tasks(self) -> list[View]:
        """Return one view a task of the first experiment, in their order."""
        names = dict.fromkeys(row.task for row in next(iter(self.rows.values())))
        return [View(self.rows, self.learned, name) for name in names]

    def _of(
        self, measure: str, *, task: str | None = None, experiment: str | None = None
    ) -> Iterator[Summary]:
        task = self.task if task is None else task
        for row in self.rows[experiment or next(iter(self.rows))]:
            if row.measure == measure and task in (None, row.task):
                yield row
