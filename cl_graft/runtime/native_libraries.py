"""Settings of two C libraries under torch: how OpenMP's threads wait, and what glibc keeps.

They are apart because OpenMP's have to be made before torch is loaded: nothing here loads it.
"""

from __future__ import annotations

import ctypes
import os
import sys

__all__ = ["SPIN_COUNT", "keep_freed_memory", "limit_spinning"]

SPIN_COUNT = 1000
"""Turns that a waiting thread spins before it sleeps."""

_USERS_OWN = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # mallopt(3)
_MEGABYTE = 2**20


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


def keep_freed_memory(*, free: int = 256, large: int = 32) -> bool:
    """Let the process keep the memory that it frees, up to a bound; it acts from now on.

    glibc's malloc gives the free end of its heap back to the system, and memory of large tensors at
    once. A training step frees and takes the same tensors again and again, so in every step the
    system clears the same pages: about a tenth of a region's step on a CPU. The command line leaves
    an allocator alone that the environment sets up (``MALLOC_…``).

    Args:
        free: MB at the end of the heap that are kept.
        large: MB from which an allocation is given back to the system as soon as it is freed.

    Returns:
        Whether the C library can do so; only glibc can.
    """
    if sys.platform != "linux":
        return False
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is None:
        return False
    return bool(
        set_option(_TRIM_THRESHOLD, free * _MEGABYTE)
        and set_option(_MMAP_THRESHOLD, large * _MEGABYTE)
    )
