"""Points of a phase's curves, kept with its checkpoint and in the cache, so none is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from cl_graft.runtime.checkpoints import Checkpoint, State

_KEY = "points"


class PhasePoints:
    """Report the losses and dev scores of a phase, and keep them."""

    def __init__(self, phase: str, measure: Callable[[str, str, int, float], None]) -> None:
        self._phase = phase
        self._measure = measure
        self._points: list[tuple[str, int, float]] = []

    def add(self, name: str, step: int, value: float) -> None:
        """Report and keep a point: ``"Loss"`` or ``"DevScore"`` at a step, from 1."""
        self._points.append((name, step, value))
        self._measure(self._phase, name, step, value)

    def join(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return values for a checkpoint or a cache with the points beside them."""
        return {**values, _KEY: [list(point) for point in self._points]}

    def replay(self, values: dict[str, Any]) -> dict[str, Any]:
        """Report the points in what `join` returned, and return the values without them."""
        kept: Iterable[tuple[str, int, float]] = values[_KEY]
        for name, step, value in kept:
            self.add(name, step, value)
        return {name: value for name, value in values.items() if name != _KEY}

    def beside(self, checkpoint: Checkpoint) -> Checkpoint:
        """Return a checkpoint that keeps the points, too, and reports them when it is loaded."""
        return _WithPoints(checkpoint, self)


class _WithPoints:
    def __init__(self, inner: Checkpoint, points: PhasePoints) -> None:
        self._inner = inner
        self._points = points

    def load(self) -> State | None:
        saved = self._inner.load()
        return None if saved is None else (saved[0], self._points.replay(dict(saved[1])))

    def offer(self, state: Callable[[], State], *, last: bool = False) -> None:
        def join() -> State:
            tensors, values = state()
            return tensors, self._points.join(values)

        self._inner.offer(join, last=last)
