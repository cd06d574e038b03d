"""Numbers that a claim looks at: of one experiment, or of several, by method and measure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from papers.measurements import Summary


class MissingMeasurement(LookupError):
    """A result does not have the number that a claim asks for."""


@dataclass(frozen=True)
class View:
    """Numbers of experiments, all of them or those of one task."""

    rows: Mapping[str, Sequence[Summary]]
    config: Mapping[str, Any] = field(default_factory=dict)
    task: str | None = None

    @property
    def learned(self) -> str:
        """The localizer whose regions the results call learned."""
        return str(self.config.get("grafting.localizer", "learned_mask"))

    def __call__(
        self,
        method: str,
        measure: str = "score",
        *,
        x: float | None = None,
        task: str | None = None,
        experiment: str | None = None,
    ) -> float:
        """Return a mean over seeds, and over tasks where the view is not of one."""
        own = self._at(x, self._of(measure, method, task=task, experiment=experiment))
        if not own:
            place = "" if x is None else f" at {x:g}"
            raise MissingMeasurement(f"{measure} of {method}{place}")
        return math.fsum(row.mean for row in own) / len(own)

    def curve(self, method: str, measure: str = "score") -> dict[float, float]:
        """Return the means of a method along the axis, from the least place up."""
        places: dict[float, list[float]] = {}
        for row in self._of(measure, method):
            if row.x is not None:
                places.setdefault(row.x, []).append(row.mean)
        if not places:
            raise MissingMeasurement(f"{measure} of {method}")
        return {x: math.fsum(found) / len(found) for x, found in sorted(places.items())}

    def deviation(self, method: str, measure: str = "score", *, x: float | None = None) -> float:
        """Return a standard deviation over seeds, averaged over tasks; of what, see a call."""
        own = self._at(x, self._of(measure, method))
        found = [row.deviation for row in own if row.seeds > 1]
        if not found:
            raise MissingMeasurement(f"{measure} of {method} over several seeds")
        return math.fsum(found) / len(found)

    def methods(self, measure: str = "score", *, like: str = "") -> list[str]:
        """Return the methods that have a measure and whose names begin so, in their order."""
        return list(
            dict.fromkeys(row.method for row in self._of(measure) if row.method.startswith(like))
        )

    def average(self, methods: Sequence[str], of: Callable[[str], float]) -> float:
        """Return the mean of a number over methods."""
        if not methods:
            raise MissingMeasurement("any number of the methods compared")
        return math.fsum(of(method) for method in methods) / len(methods)

    def tasks(self) -> list[View]:
        """Return one view a task of the first experiment, in their order."""
        names = dict.fromkeys(row.task for row in next(iter(self.rows.values())))
        return [replace(self, task=name) for name in names]

    def seeds(self) -> list[View]:
        """Return one view a seed, of what all of them have numbers of."""
        most = max((row.seeds for rows in self.rows.values() for row in rows), default=0)
        return [replace(self, rows=self._of_seed(seed, most)) for seed in range(most)]

    def _of_seed(self, seed: int, most: int) -> dict[str, list[Summary]]:
        return {
            name: [
                replace(
                    row, mean=row.values[seed], deviation=0.0, seeds=1, values=(row.values[seed],)
                )
                for row in rows
                if row.seeds == most
            ]
            for name, rows in self.rows.items()
        }

    def _of(
        self,
        measure: str,
        method: str | None = None,
        *,
        task: str | None = None,
        experiment: str | None = None,
    ) -> Iterator[Summary]:
        task = self.task if task is None else task
        for row in self.rows[experiment or next(iter(self.rows))]:
            if row.measure == measure and task in (None, row.task) and method in (None, row.method):
                yield row

    @staticmethod
    def _at(x: float | None, rows: Iterator[Summary]) -> list[Summary]:
        own = list(rows)
        if x is None:
            return own
        near = min((r.x for r in own if r.x is not None), key=lambda at: abs(at - x), default=0)
        return [r for r in own if r.x == near and math.isclose(near, x, rel_tol=0.3)]
