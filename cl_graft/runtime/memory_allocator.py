"""A setting of glibc's allocator: freed memory stays with the process for the next training step.

glibc's malloc gives the free end of its heap back to the system, and memory of large tensors at
once. A training step frees and takes the same tensors again and again, and the system then has to
hand out and clear the same pages in every step: about a tenth of a region's step on a CPU. The
command line leaves an allocator alone that the environment sets up (``MALLOC_…``).
"""

from __future__ import annotations

import ctypes
import sys

__all__ = ["keep_freed_memory"]

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # mallopt(3)
_MEGABYTE = 2**20


def keep_freed_memory(*, free: int = 256, large: int = 32) -> bool:
    """Let the process keep the memory that it frees, up to a bound; it acts from now on.

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
