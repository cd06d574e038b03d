"""What a cache is: outcomes kept under a name of all that determines them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Protocol

from torch import Tensor

import cl_graft

__all__ = ["Cache", "cache_key"]


class Cache(Protocol):
    """Keeps outcomes by the content that determines them."""

    def get(self, key: str) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Return what was put under a key, or None."""
        ...

    def put(self, key: str, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Keep tensors and JSON facts under a key."""
        ...


def cache_key(phase: str, identity: str, recipe: Mapping[str, Any], seed: int) -> str:
    """Name the outcome of a phase by all that determines it.

    This package's version is part of it: another one may compute it in another way.
    """
    text = json.dumps([cl_graft.__version__, phase, identity, recipe, seed], sort_keys=True)
    return f"{phase}-{hashlib.sha256(text.encode()).hexdigest()[:40]}"
