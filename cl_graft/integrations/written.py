"""What an export holds of a graft, in numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Written", "listed"]


@dataclass(frozen=True)
class Written:
    """What the files of a format hold of a graft.

    Attributes:
        record: What `task.json` says beyond `task_record`.
        left_out: Coordinates that are not in the files, by where they are (``LayerNorm.bias``).
        copied: Coordinates that are there in whole copies of their modules, by where they are.
        inexact: Coordinates that get a value with other bits.
        largest_error: Largest difference of these, absolute.
    """

    record: Mapping[str, Any] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)
    copied: Mapping[str, int] = field(default_factory=dict)
    inexact: int = 0
    largest_error: float = 0.0


def listed(counts: Mapping[str, int]) -> str:
    """Return numbers of coordinates in words, as ``"LayerNorm.bias 12, word embeddings 1,024"``."""
    return ", ".join(f"{kind} {count:,}" for kind, count in counts.items())
