"""Rows that cannot be used: each is an error, or they are left out and counted, file by file."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeVar

from cl_graft.errors import InputError

OnBadRow = Literal["error", "skip"]

_SHOWN = 3
_T = TypeVar("_T")
_U = TypeVar("_U")

_logger = logging.getLogger(__name__)


class BadRows:
    """Rows of one task's files that cannot be used: left out and counted by file, or errors.

    `first` are the faults of the first of them, and `notes` other sentences on the files' rows.
    """

    def __init__(self, on_bad_row: OnBadRow = "error") -> None:
        self.skip = on_bad_row == "skip"
        self.counts: dict[str, int] = {}
        self.first: dict[str, list[str]] = {}
        self.notes: list[str] = []

    def leave_out(self, file: str, reason: str, *, rows: int = 1) -> None:
        """Count rows of a file that are left out."""
        self.counts[file] = self.counts.get(file, 0) + rows
        shown = self.first.setdefault(file, [])
        if len(shown) < _SHOWN:
            shown.append(reason)

    @property
    def total(self) -> int:
        """Rows that were left out, of all files."""
        return sum(self.counts.values())

    def merge(self, other: BadRows, read: int) -> None:
        """Take in the bad rows of another collection as one's own."""
        for file, rows in other.counts.items():
            if not self.skip:
                several = f"{rows:,} of {rows + read:,} rows cannot be used; " if rows > 1 else ""
                raise InputError(
                    f"{other.first[file][0]} ({several}on_bad_row 'skip' leaves such rows out, and "
                    "counts them)"
                )
            self.counts[file] = self.counts.get(file, 0) + rows
            self.first[file] = [*self.first.get(file, ()), *other.first[file]][:_SHOWN]

    def read_each(self, file: str, items: Iterable[_T], read: Callable[[_T], _U]) -> list[_U]:
        """Read items one by one; those at which `read` raises an InputError are bad rows."""
        results: list[_U] = []
        bad = BadRows("skip")
        for item in items:
            try:
                results.append(read(item))
            except InputError as fault:
                bad.leave_out(file, str(fault))
        self.merge(bad, len(results))
        self.refuse_none_left(file, len(results))
        return results

    def refuse_none_left(self, file: str, read: int) -> None:
        """Refuse a file of which no row was kept."""
        if read:
            return
        if file in self.counts:
            raise InputError(
                f"{file}: none of its {self.counts[file]} rows can be used; {self.first[file][0]}"
            )
        raise InputError(f"{file}: there are no rows")

    def report(self) -> dict[str, Any]:
        """Return as JSON how many rows were left out of each file, and why the first ones were."""
        return {
            file: {"rows": rows, "first": list(self.first[file])}
            for file, rows in self.counts.items()
        }

    def sentences(self) -> list[str]:
        """Return the notes, and how many rows were left out of each file."""
        return [
            *self.notes,
            *(
                f"{file}: left out {rows:,} row{'' if rows == 1 else 's'}: "
                f"{'; '.join(self.first[file])}{'; …' if rows > len(self.first[file]) else ''}"
                for file, rows in self.counts.items()
            ),
        ]

    def warn(self) -> None:
        """Log the sentences."""
        for line in self.sentences():
            _logger.warning("%s", line)
