"""Checkpoints of a run in files: the states of its phases, from which a killed run is resumed.

    DIR/dense.safetensors    the dense run
    DIR/loop.safetensors     the strategy's own loop

There is one file a kind of phase, replaced atomically; a damaged one is as good as none.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from cl_graft.errors import BankError
from cl_graft.runtime.checkpoints import Checkpoint, State, join_tensors, select_tensors
from cl_graft.runtime.signals import Stop
from cl_graft.storage.files import pack, read_file, replace_file, to_json, unpack

logger = logging.getLogger(__name__)

_FORMAT = "cl-graft-checkpoint"
_REST = 100
"""Pause after a checkpoint, as a multiple of the time that it took: they cost 1 % of the time."""


class FileCheckpoints:
    """The checkpoints of one run; a `cl_graft.runtime.checkpoints.Checkpoints`.

    A state is kept when the last one is `seconds` old, after every `steps` offers, and before a
    stop.
    """

    def __init__(
        self,
        folder: Path,
        *,
        seconds: float | None = None,
        steps: int | None = None,
        stop: Stop | None = None,
    ) -> None:
        self.folder = folder
        self._seconds = seconds
        self._steps = steps
        self._stop = stop or Stop()
        self._last_write = time.perf_counter()
        self._cost = 0.0
        self._offers = 0

    def at(self, key: str) -> Checkpoint:
        """Return the checkpoint of a phase, by its key."""
        return _Phase(self, key)

    def poll(self) -> None:
        """Stop the process if it was asked to."""
        self._stop.check()

    def offer(self, key: str, state: Callable[[], State], *, last: bool = False) -> None:
        """Keep the state of a phase if it is time to, and stop the process if it was asked to."""
        self._offers += 1
        if self._due(last):
            self.keep(key, state)
        self.poll()

    def keep(self, key: str, state: Callable[[], State]) -> bool:
        """Keep the state of a phase; where it cannot be written, warn and return False."""
        started = time.perf_counter()
        try:
            tensors, values = state()
            # Values are JSON in a tensor of its own: headers are bounded.
            text = torch.frombuffer(bytearray(to_json(values), "ascii"), dtype=torch.uint8)
            joined = join_tensors(state=tensors, values={"json": text})
            self.folder.mkdir(parents=True, exist_ok=True)
            data = pack(joined, {"key": key}, format=_FORMAT)
            replace_file(self._path(_kind(key)), data)
            written = True
        except OSError as error:
            logger.warning("no checkpoint could be written, the one before stands: %s", error)
            written = False
        self._last_write = time.perf_counter()
        self._cost, self._offers = self._last_write - started, 0
        return written

    def load(self, key: str) -> State | None:
        """Return the last state of a phase; None if there is none that can be read."""
        held, state = self._read(_kind(key))
        return state if held == key else None

    def latest(self, kind: str) -> State | None:
        """Return the last state of a kind of phase, whatever its key."""
        return self._read(kind)[1]

    def clear(self, *, but: str) -> None:
        """Remove the checkpoints of all kinds of phases but that of one key."""
        for path in self.folder.glob("*.safetensors"):
            if path != self._path(_kind(but)):
                path.unlink()

    def _read(self, kind: str) -> tuple[str, State | None]:
        """Return key and state of the checkpoint of a kind."""
        path = self._path(kind)
        if not path.is_file():
            return "", None
        try:
            data = read_file(path, format=_FORMAT)
            head, tensors = unpack(data, format=_FORMAT, name=str(path))
        except (BankError, OSError) as error:
            logger.warning("%s; its phase begins again", error)
            return "", None
        text = select_tensors(tensors, "values")["json"].numpy().tobytes()
        return head["key"], (select_tensors(tensors, "state"), json.loads(text))

    def _due(self, last: bool) -> bool:
        if self._stop.asked is not None:
            return True
        if self._steps is not None and self._offers >= self._steps:
            return True
        passed = time.perf_counter() - self._last_write
        if self._seconds is None or passed < _REST * self._cost:
            return False
        return last or passed >= self._seconds

    def _path(self, kind: str) -> Path:
        return self.folder / f"{kind}.safetensors"


@dataclass(frozen=True)
class _Phase:
    """The checkpoint of one phase."""

    checkpoints: FileCheckpoints
    key: str

    def load(self) -> State | None:
        return self.checkpoints.load(self.key)

    def offer(self, state: Callable[[], State], *, last: bool = False) -> None:
        self.checkpoints.offer(self.key, state, last=last)


def _kind(key: str) -> str:
    return key.split("-", 1)[0]
