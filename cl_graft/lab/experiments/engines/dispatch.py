"""The engine that gives the jobs of a comparison to the workers of a pool.

A worker that dies (killed, out of memory, its machine lost) costs what its job did since its last
checkpoint: the job is given to another, up to a number of times.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from cl_graft.lab.experiments import folders
from cl_graft.lab.experiments.comparison.jobs import Failed, Job, Outcome
from cl_graft.lab.experiments.engines.message_board import MessageBoard
from cl_graft.lab.experiments.engines.worker import WorkerJob
from cl_graft.runtime.progress import Progress, Step
from cl_graft.runtime.signals import Stop
from cl_graft.storage import release_dead

__all__ = ["ATTEMPTS", "Pool", "PoolEngine", "WorkerDied"]

ATTEMPTS = 4
"""Number of workers that a job is given to before it counts as failed, if all of them die."""

_POLL_SECONDS = 0.5

logger = logging.getLogger(__name__)


class WorkerDied(Exception):
    """A worker died before its job was over."""


class Pool(Protocol):
    """Workers in other processes or machines; a handle stands for a job that one of them has."""

    @property
    def slots(self) -> int | None:
        """Number of jobs that it has workers for now; None if a queue decides."""
        ...

    def submit(self, sent: WorkerJob) -> Any:
        """Give a job to the next free worker; return its handle, which can be hashed."""
        ...

    def wait(self, handles: Sequence[Any], seconds: float) -> Sequence[Any]:
        """Wait for at most `seconds`, and return the handles of jobs that are over."""
        ...

    def outcome(self, handle: Any) -> Outcome | None:
        """Return the outcome of a job that is over; None if it was asked to stop.

        Raises:
            WorkerDied: If its worker died.
        """
        ...

    def close(self) -> None:
        """End what still runs."""
        ...


@dataclass(frozen=True)
class PoolEngine:
    """The engine that gives jobs to the workers of a pool.

    Attributes:
        pool: The pool, which the caller closes.
        threads: Number of threads of a worker.
        most: Largest number of jobs at once; None means the pool's `slots`.
    """

    pool: Pool
    threads: int = 1
    most: int | None = None

    def __call__(
        self, jobs: Sequence[Job], *, progress: Progress, stop: Stop
    ) -> Iterator[tuple[Job, Outcome]]:
        """Do the jobs; see `cl_graft.lab.experiments.comparison.jobs.Engine`."""
        if not jobs:
            return
        board = MessageBoard(jobs[0].out.resolve() / folders.ENGINE / "board")
        board.create()
        try:
            with stop.saving():
                yield from self._spread(list(jobs), board, progress, stop)
        finally:
            board.remove()
            with suppress(OSError):  # a pool that has files there removes it
                board.folder.parent.rmdir()
        stop.check()

    def _spread(
        self, waiting: list[Job], board: MessageBoard, progress: Progress, stop: Stop
    ) -> Iterator[tuple[Job, Outcome]]:
        running: dict[Any, Job] = {}
        shown: dict[str, Step] = {}
        attempts: Counter[str] = Counter()
        failed_tunings: dict[tuple[Path, str], Failed] = {}
        while running or (waiting and stop.asked is None):
            places = self._places()
            for job in _ready(waiting, list(running.values())):
                if stop.asked is not None or len(running) >= places:
                    break
                waiting.remove(job)
                if (failed := failed_tunings.get((job.out, job.strategy))) is not None:
                    yield job, failed
                    continue
                attempts[job.name] += 1
                running[self.pool.submit(WorkerJob(job, board, self.threads, Path.cwd()))] = job
            if stop.asked is not None and board.read_stop() is None:
                board.request_stop(stop.asked)
            for handle in self.pool.wait(list(running), _POLL_SECONDS):
                job = running.pop(handle)
                try:
                    outcome = self.pool.outcome(handle)
                except WorkerDied as death:
                    # To its folder nobody else writes while the comparison is locked.
                    release_dead(job.folder)
                    if attempts[job.name] < ATTEMPTS:
                        logger.warning("%s: %s; it goes on with another worker", job.name, death)
                        waiting.insert(0, job)
                        continue
                    outcome = Failed(f"its worker died {ATTEMPTS} times, last: {death}")
                if outcome is None:
                    continue
                if isinstance(outcome, Failed) and job.seed is None:
                    failed_tunings[job.out, job.strategy] = outcome
                progress(Step("over", 1, 1, "", job.title, job.seed or 0, job=job.name))
                yield job, outcome
            for job in running.values():
                step = board.read_step(job)
                if step is not None and step != shown.get(job.name):
                    shown[job.name] = step
                    progress(replace(step, job=job.name))

    def _places(self) -> float:
        """Return how many jobs the pool may have at once.

        One more than it has workers for: the next job is there when a worker is done, and a cluster
        that can grow sees that it should.
        """
        if self.most is not None:
            return self.most
        slots = self.pool.slots
        return math.inf if slots is None else slots + 1


def _ready(waiting: Sequence[Job], running: Sequence[Job]) -> list[Job]:
    """List the jobs that wait for no other job."""
    there = {job.name for job in (*waiting, *running)}
    return [job for job in waiting if not job.needs & there]
