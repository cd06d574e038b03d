"""A limit on the spinning of OpenMP's waiting threads, which takes cores from other processes.

Between two parallel loops libgomp's threads wait in a loop of their own, by default for millions of
turns, so that the next loop starts at once. Where other processes want the cores, that waiting
takes the very time that the work needs. A short spin costs nothing on an idle machine and most of
the loss beside other work is gone (measured in docs/guides/speed_and_memory.md). libgomp reads its
settings once, when torch is loaded, so the limit is set before.
"""

from __future__ import annotations

import os
import sys

__all__ = ["SPIN_COUNT", "limit_spinning"]

SPIN_COUNT = 1000
"""Turns that a waiting thread spins before it sleeps."""

_USERS_OWN = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")


def limit_spinning() -> bool:
    """Let OpenMP's threads sleep soon when they wait, in this process and those it starts.

    A setting of the user's own (``GOMP_SPINCOUNT``, ``OMP_WAIT_POLICY``) stays as it is.

    Returns:
        Whether the limit was set; False also where torch is loaded already and reads it no more.
    """
    if "torch" in sys.modules or any(name in os.environ for name in _USERS_OWN):
        return False
    os.environ["GOMP_SPINCOUNT"] = str(SPIN_COUNT)
    return True
