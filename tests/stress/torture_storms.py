"""Storms: trouble from outside while `cl-graft` runs, and what its user sees of it.

Two writers on one folder, owners of locks that died, clocks that were set, readers beside a writer,
full and read-only disks, NaN in every phase, and phases without enough memory. Every case runs the
command line in a process of its own on a tiny model, and survives if it ends as it must, loses
nothing that was saved, and goes on to the same bits.

    python tests/stress/torture_storms.py --scale full
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from storm_cases import Place
from storm_disks import denied, full_at_the_start, full_later, may_mount, read_only
from storm_numbers import no_memory, not_a_number
from storm_writers import clock_set_back, dead_owners, readers, two_writers
from tiny_checkpoint import tiny_checkpoint
from torture_children import prepare
from torture_report import Row, end_part, options

_MOUNTS = "CL_GRAFT_TORTURE_MOUNTS"


def main() -> None:
    """Let every storm come, one after the other."""
    given = options(__doc__ or "").parse_args()
    if _MOUNTS not in os.environ:
        mounts = may_mount()
        os.environ[_MOUNTS] = str(int(mounts))
        if mounts:  # in a mount namespace of its own
            os.execvp("unshare", ["unshare", "--mount", sys.executable, *sys.argv])
    started = time.monotonic()
    full = given.scale == "full"
    prepare()
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        place = Place(Path(folder), tiny_checkpoint(Path(folder)))
        rows = [storm() for storm in _storms(place, full=full)]
    mounts = os.environ[_MOUNTS] == "1"
    seconds = time.monotonic() - started
    end_part(given.out, "storms", rows, seconds, scale=given.scale, mounts=mounts)


def _storms(place: Place, *, full: bool) -> list[Callable[[], Row]]:
    if not full:
        return [
            lambda: dead_owners(place, rounds=1),
            lambda: readers(place, entries=20),
            lambda: denied(place),
        ]
    mounts = [full_at_the_start, full_later, read_only] if os.environ[_MOUNTS] == "1" else []
    return [
        lambda: two_writers(place, rounds=3),
        lambda: dead_owners(place, rounds=6),
        lambda: clock_set_back(place, rounds=6),
        lambda: readers(place, entries=200),
        *(lambda storm=storm: storm(place) for storm in mounts),
        lambda: denied(place),
        lambda: not_a_number(place, full=True),
        lambda: no_memory(place),
    ]


if __name__ == "__main__":
    main()
