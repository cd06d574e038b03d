"""A cache in a folder: dense runs and rankings, one file a key.

Each file records its key, so a renamed file is a miss; so is a damaged one.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from cl_graft.errors import BankError, CannotWrite
from cl_graft.storage import explain_write_errors
from cl_graft.storage.files import pack, read_file, replace_file, report_damage, unpack
from cl_graft.storage.serialization import part

logger = logging.getLogger(__name__)

_FORMAT = "cl-graft-cache"


class DirectoryCache:
    """A cache of tensors and JSON values in files; a `cl_graft.runtime.cache.Cache`.

    Attributes:
        hits: Number of keys that were found, by phase (the first word of a key).
        misses: Number of keys that were not found, by phase.
        saved: Seconds that the found outcomes took when they were computed, by phase.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.hits: Counter[str] = Counter()
        self.misses: Counter[str] = Counter()
        self.saved: Counter[str] = Counter()
        self._asked: dict[str, float] = {}

    def get(self, key: str) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Return what was put under a key; None if nothing was, or its file is damaged."""
        phase = key.split("-", 1)[0]
        head, tensors = self._read(key)
        if head is None:
            self.misses[phase] += 1
            self._asked[key] = time.perf_counter()
            return None
        self.hits[phase] += 1
        self.saved[phase] += head["seconds"]
        logger.info("cache: %s answered, %.1f s saved", key, head["seconds"])
        return tensors, head["values"]

    def put(self, key: str, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        """Store tensors, JSON values and the seconds since `get` found nothing, under a key.

        Where the disk is full, a warning is logged and nothing is stored.
        """
        now = time.perf_counter()
        seconds = now - self._asked.pop(key, now)
        content = {"key": key, "values": dict(values), "seconds": seconds}
        data = pack(tensors, content, format=_FORMAT)
        path = self._path(key)
        try:
            with explain_write_errors(self.folder):
                self.folder.mkdir(parents=True, exist_ok=True)
            replace_file(path, data)
        except CannotWrite as error:
            logger.warning("%s; going on without keeping it in the cache", error)
        else:
            logger.info("cache: %s kept, it took %.1f s", key, seconds)

    def _read(self, key: str) -> tuple[dict[str, Any] | None, dict[str, Tensor]]:
        path = self._path(key)
        if not path.is_file():
            return None, {}
        try:
            head, tensors = unpack(read_file(path, format=_FORMAT), format=_FORMAT, name=str(path))
            with report_damage(str(path)):
                for name, kind in (("values", dict), ("seconds", float)):
                    part(head, name, kind)
                if (stored := part(head, "key", str)) != key:
                    raise ValueError(f"it was stored under the key {stored!r}")
        except (BankError, OSError) as error:
            logger.warning("%s; it is computed again", error)
            return None, {}
        return head, tensors

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.safetensors"
