"""The board: a folder through which the processes of a comparison tell each other where they stand.

A worker pins up its latest step about twice a second; whoever started it reads that, and pins up
that all are to stop. Files in the folder that they share anyway need no connection of their own,
and nothing is lost with them.
"""

from __future__ import annotations

import json
import shutil
import signal
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from cl_graft.experiments.comparison.jobs import Job
from cl_graft.runtime.progress import Step
from cl_graft.runtime.signals import Stop
from cl_graft.storage.files import replace_file

__all__ = ["Board", "Pin"]

_STOP = "stop"
_EVERY_SECONDS = 0.5


@dataclass(frozen=True)
class Board:
    """The board of a comparison.

    Attributes:
        folder: Where it is; it is gone when the comparison is over.
    """

    folder: Path

    def put_up(self) -> None:
        """Begin with an empty board."""
        self.take_down()
        self.folder.mkdir(parents=True)

    def take_down(self) -> None:
        """Remove it."""
        if self.folder.is_symlink():
            self.folder.unlink()
        shutil.rmtree(self.folder, ignore_errors=True)

    def ask_to_stop(self, number: int) -> None:
        """Ask all workers to save and stop, as on a signal."""
        replace_file(self.folder / _STOP, str(number).encode())

    def asks_to_stop(self) -> int | None:
        """Return the signal on which workers are to stop; None if they are not."""
        try:
            return int((self.folder / _STOP).read_text() or signal.SIGTERM)
        except (OSError, ValueError):
            return None

    def pin(self, job: Job, step: Step) -> None:
        """Show the latest step of a job; a board that is gone shows nothing."""
        with suppress(OSError):
            replace_file(self._path(job), json.dumps(asdict(step)).encode())

    def latest(self, job: Job) -> Step | None:
        """Return the latest step of a job; None if it has shown none."""
        try:
            return Step(**json.loads(self._path(job).read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def _path(self, job: Job) -> Path:
        return self.folder / f"{job.name}.json"


@dataclass
class Pin:
    """Shows the steps of one job on a board, and hears from it when to stop.

    Attributes:
        board: The board.
        job: The job.
        stop: Of the job.
    """

    board: Board
    job: Job
    stop: Stop
    _last: float = field(default=0.0, init=False)

    def __call__(self, step: Step) -> None:
        """Take a step; about twice a second it is shown."""
        now = time.monotonic()
        if now - self._last < _EVERY_SECONDS:
            return
        self._last = now
        self.board.pin(self.job, step)
        if self.stop.asked is None:
            self.stop.asked = self.board.asks_to_stop()
