"""Registries: tables of methods by name, to which other packages can add."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import entry_points
from typing import TypeVar

from cl_graft.errors import InputError, first_line, nearest

logger = logging.getLogger(__name__)

_Entry = TypeVar("_Entry")


class Registry(Mapping[str, _Entry]):
    """Entries by name; what registers them is imported on the first lookup.

    A lookup imports the modules of `load_own`. Where these register no such name, and wherever
    entries are listed, it imports those of `load_others` and then the entry points of installed
    packages. An entry point that cannot be loaded is warned of; it is named again in the error when
    a name is not found.
    """

    def __init__(
        self,
        kind: str,
        *,
        group: str,
        load_own: Callable[[], object] = lambda: None,
        load_others: Callable[[], object] = lambda: None,
    ) -> None:
        self.kind = kind
        self.group = group
        self._steps = [load_own, load_others, self._load_entry_points]
        self._entries: dict[str, _Entry] = {}
        self._of_failed_load: set[str] = set()
        self.failures: list[str] = []

    def register(self, name: str, entry: _Entry) -> None:
        """Add an entry; a name that is taken raises `ValueError`."""
        if name in self._entries and name not in self._of_failed_load:
            raise ValueError(f"a {self.kind} {name!r} is registered already; choose another name")
        self._of_failed_load.discard(name)
        self._entries[name] = entry

    def find(self, name: str) -> _Entry:
        """Return the entry of a name, or raise `InputError` with the nearest name."""
        self._load(until=name)
        if name in self._entries:
            return self._entries[name]
        failures = "".join(f"; {failure}" for failure in self.failures)
        raise InputError(f"unknown {self.kind} {name!r}: {nearest(name, self._entries)}{failures}")

    def __getitem__(self, name: str) -> _Entry:
        self._load(until=name)
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        self._load()
        return iter(self._entries)

    def __len__(self) -> int:
        self._load()
        return len(self._entries)

    def _load(self, *, until: str | None = None) -> None:
        """Import what registers entries, step by step, until a name is there."""
        while self._steps and (until is None or until not in self._entries):
            step = self._steps.pop(0)  # first, as modules that register may look entries up
            before = set(self._entries)
            try:
                step()
            except BaseException:  # such as an interruption in a notebook: the next lookup retries
                self._steps.insert(0, step)
                self._of_failed_load |= self._entries.keys() - before
                raise

    def _load_entry_points(self) -> None:
        for point in sorted(entry_points(group=self.group)):
            try:
                point.load()
            except Exception as error:
                package = point.dist.name if point.dist else "unknown"
                self.failures.append(
                    f"the entry point {point.name!r} ({point.value}) of the package {package} "
                    f"cannot be loaded: {type(error).__name__}: {first_line(error)}"
                )
                logger.warning("%s: %s", self.group, self.failures[-1])
