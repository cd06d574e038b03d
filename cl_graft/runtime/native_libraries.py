"""The waiting of OpenMP's threads under torch.

It is apart because that has to be set before torch is loaded: nothing here loads it.
"""

from __future__ import annotations

import os
import sys

SPIN_COUNT = 1000
"""Turns that a waiting thread spins before it sleeps."""

_USERS_OWN = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")


def limit_spinning() -> bool:
    """Let OpenMP's threads sleep soon when they wait, in this process and those it starts.

    Between two parallel loops libgomp's threads spin, by default for millions of turns, so that the
    next loop starts at once. Other processes that want the cores lose that time. A short spin costs
    nothing on an idle machine and avoids most of the loss (measured in
    docs/guides/train_faster.md). libgomp reads its settings once, when torch is loaded. A
    setting of the user's own (``GOMP_SPINCOUNT``, ``OMP_WAIT_POLICY``) stays as it is.

    Returns:
        Whether the limit was set; False also where torch is loaded already and reads it no more.
    """
    if "torch" in sys.modules or any(name in os.environ for name in _USERS_OWN):
        return False
    os.environ["GOMP_SPINCOUNT"] = str(SPIN_COUNT)
    return True
