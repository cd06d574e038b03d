"""The entry of a bank that each experience was learned into.

A task label that comes back is learned into an entry of its own. Each of its experiences is then
answered by the entry that was learned on it, and not by the label's latest one.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

__all__ = ["ExperienceEntries"]

_Known = dict[tuple[int, int], int]


class ExperienceEntries:
    """The position of the entry that was learned on an experience.

    An experience is known by its benchmark, its number in the stream and its task label, so the
    test rows of an experience belong to its training rows. Streams that name no benchmark, as
    those of `benchmark_from_datasets`, are taken for one. A copy in another process has met no
    benchmark: it takes those that it meets for the ones that were learned.
    """

    def __init__(self) -> None:
        self._by_benchmark: WeakKeyDictionary[Any, _Known] = WeakKeyDictionary()
        self._latest: _Known = {}
        self._restored: _Known = {}

    def add(self, experience: Any, *, label: int, position: int) -> None:
        """Note that an experience was learned into the entry at a position."""
        key = int(experience.current_experience), label
        self._known(experience)[key] = position
        self._latest[key] = position

    def find(self, experience: Any, *, label: int) -> int | None:
        """Return the position of the entry; None if the experience was not learned."""
        return self._known(experience).get((int(experience.current_experience), label))

    def _known(self, experience: Any) -> _Known:
        benchmark = getattr(experience.origin_stream, "benchmark", None)
        if benchmark is None:
            return self._latest
        return self._by_benchmark.setdefault(benchmark, dict(self._restored))

    def __getstate__(self) -> dict[str, Any]:
        return {"latest": self._latest}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._by_benchmark = WeakKeyDictionary()
        self._latest = dict(state["latest"])
        self._restored = dict(self._latest)
