"""A folder of messages between the workers of a comparison and the process that started them.

A worker writes its latest step about twice a second; the process that started it reads it, and
writes when all are to stop. Files in a folder that all share anyway need no connection.
"""

from __future__ import annotations

import json
import shutil
import signal
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from cl_graft.lab.experiments.comparison.jobs import Job
from cl_graft.runtime.progress import Step
from cl_graft.runtime.signals import Stop
from cl_graft.storage.files import replace_file

__all__ = ["MessageBoard", "StepReporter"]

_STOP = "stop"
_EVERY_SECONDS = 0.5


@dataclass(frozen=True)
class MessageBoard:
    """The messages of a comparison.

    Attributes:
        folder: Folder of the messages; it is removed when the comparison is over.
    """

    folder: Path

    def create(self) -> None:
        """Create an empty folder."""
        self.remove()
        self.folder.mkdir(parents=True)

    def remove(self) -> None:
        """Remove the folder."""
        if self.folder.is_symlink():
            self.folder.unlink()
        shutil.rmtree(self.folder, ignore_errors=True)

    def request_stop(self, number: int) -> None:
        """Ask all workers to save and stop, as on a signal."""
        replace_file(self.folder / _STOP, str(number).encode())

    def read_stop(self) -> int | None:
        """Return the signal on which workers are to stop; None if they are not."""
        try:
            return int((self.folder / _STOP).read_text() or signal.SIGTERM)
        except (OSError, ValueError):
            return None

    def show_step(self, job: Job, step: Step) -> None:
        """Write the latest step of a job; nothing is written once the folder is removed."""
        with suppress(OSError):
            replace_file(self._path(job), json.dumps(asdict(step)).encode())

    def read_step(self, job: Job) -> Step | None:
        """Return the latest step of a job; None if it has shown none."""
        try:
            return Step(**json.loads(self._path(job).read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def _path(self, job: Job) -> Path:
        return self.folder / f"{job.name}.json"


@dataclass
class StepReporter:
    """Writes the steps of one job to the message board, and reads from it when to stop.

    Attributes:
        board: Message board of the comparison.
        job: Job whose steps are written.
        stop: Asks the job to stop.
    """

    board: MessageBoard
    job: Job
    stop: Stop
    _last: float = field(default=0.0, init=False)

    def __call__(self, step: Step) -> None:
        """Take a step; about twice a second it is written."""
        now = time.monotonic()
        if now - self._last < _EVERY_SECONDS:
            return
        self._last = now
        self.board.show_step(self.job, step)
        if self.stop.asked is None:
            self.stop.asked = self.board.read_stop()
