"""Numbers of bytes: as people read and write them, such as ``24GiB``, and as budgets."""

from __future__ import annotations

import re
from collections.abc import Callable

from cl_graft.errors import InputError

_UNITS = {"b": 1, "": 1} | {
    f"{letter}{ending}": base**power
    for power, letter in enumerate("kmgt", start=1)
    for ending, base in (("b", 1000), ("ib", 1024))
}


def parse_bytes(text: str) -> int:
    """Read a size such as ``"24GiB"``, ``"512 MB"`` or ``"1e9"``, above 0."""
    parts = re.fullmatch(r"\s*([0-9.]+(?:e[0-9]+)?)\s*([a-z]*)\s*", text.lower())
    try:
        size = round(float(parts[1]) * _UNITS[parts[2]]) if parts else 0
    except (ValueError, KeyError):
        size = 0
    if size < 1:
        raise InputError(f"no size of memory: {text!r}; expected one such as 24GiB or 512MB")
    return size


def readable_bytes(size: int) -> str:
    """Write a size with three digits or so and its unit, as ``"1.23 GiB"``."""
    amount, unit = float(size), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount < 1000:
            break
        amount, unit = amount / 1024, larger
    if unit == "B":
        return f"{size} B"
    return f"{amount:.{2 if amount < 10 else 1 if amount < 100 else 0}f} {unit}"


def decimal_bytes(size: int) -> str:
    """Write a size in powers of 1,000, as disks have it: ``"480 bytes"``, ``"124 kB"``."""
    if size < 1000:
        return f"{size} byte{'' if size == 1 else 's'}"
    return f"{size / 1e6:,.1f} MB" if size >= 1e6 else f"{size / 1e3:,.0f} kB"


def largest_within(budget: float, size: Callable[[int], float], *, least: int, most: int) -> int:
    """Return the largest number in [`least`, `most`] whose size is within a budget."""
    if size(least) > budget:
        raise InputError(f"at its smallest a task adds {size(least):,.0f} bytes")
    low, high = least, most
    while low < high:
        middle = min(2 * low, (low + high + 1) // 2)
        low, high = (middle, high) if size(middle) <= budget else (low, middle - 1)
    return low
