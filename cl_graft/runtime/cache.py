"""The protocol of a cache, and the key of a result in it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Protocol

from torch import Tensor

import cl_graft


class Cache(Protocol):
    """Results of long computations, by a key that all their inputs determine."""

    def get(self, key: str) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Return the tensors and values of a key; None if there are none."""

    def put(self, key: str, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Keep tensors, and values that JSON can hold, under a key."""


class _NoCache:
    """Keeps nothing."""

    def get(self, key: str) -> None:
        del key

    def put(self, key: str, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        del key, tensors, values


NO_CACHE: Cache = _NoCache()
"""The cache of a run that keeps nothing."""


def cache_key(phase: str, identity: str, recipe: Mapping[str, Any], seed: int) -> str:
    """Return the key of a phase's result: the phase's name and a hash of all its inputs.

    The version of this package is one of the inputs: another version may compute another result.
    """
    text = json.dumps([cl_graft.__version__, phase, identity, recipe, seed], sort_keys=True)
    return f"{phase}-{hashlib.sha256(text.encode()).hexdigest()[:40]}"
