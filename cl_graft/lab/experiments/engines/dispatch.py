"""The engine that gives the jobs of a comparison to the workers of a pool.

A job whose worker dies is given to another, up to a number of times.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from cl_graft.lab.experiments.comparison.jobs import Failed, Job, Outcome, attempt
from cl_graft.runtime.progress import Progress, Step
from cl_graft.runtime.signals import Stop, Stopped, stoppable
from cl_graft.storage import release_dead

ATTEMPTS = 4
"""Number of workers that a job is given to before it counts as failed, if all of them die."""

_POLL_SECONDS = 0.2
_STOP_SECONDS = 30.0
"""Time that workers have to save after they were asked to stop."""

logger = logging.getLogger(__name__)


class WorkerDied(Exception):
    """A worker died before its job was over."""


class Future(Protocol):
    """A job that a worker has or will have; `result` may raise `WorkerDied`."""

    def done(self) -> bool:
        """Tell whether the job is over, or its worker is dead."""
        ...

    def result(self) -> Outcome | None:
        """Return the outcome of a job that is over; None if it was asked to stop."""
        ...

    def cancel(self) -> Any:
        """Send the worker a signal to stop; a job that waits for a worker never starts."""
        ...


class Pool(Protocol):
    """Workers in other processes or machines."""

    @property
    def slots(self) -> int | None:
        """Number of jobs that it has workers for now; None if a queue decides."""
        ...

    def submit(self, job: Job, *, threads: int) -> Future:
        """Let the next free worker call `work`."""
        ...

    def close(self) -> None:
        """End what still runs."""
        ...


def work(job: Job, threads: int, folder: Path) -> Outcome | None:
    """Do a job in the process of a worker; None if it was stopped, with all it reached saved.

    Relative paths in the settings start from `folder`. The last bits of results depend on the
    number of threads.
    """
    torch.set_num_threads(threads)
    with suppress(OSError):  # a machine may have no such folder, and paths may all be absolute
        os.chdir(folder)
    try:
        with stoppable() as stop:
            return attempt(job, stop=stop)
    except Stopped:
        return None


@dataclass(frozen=True)
class PoolEngine:
    """The engine that gives jobs to the workers of a pool, which the caller closes.

    Without `max_jobs` there are as many jobs at once as the pool's `slots`, and one more: the next
    job is there when a worker is done, and a cluster that can grow sees that it should.
    """

    pool: Pool
    threads: int = 1
    max_jobs: int | None = None

    def __call__(
        self, jobs: Sequence[Job], *, progress: Progress, stop: Stop
    ) -> Iterator[tuple[Job, Outcome]]:
        """Do the jobs; see `cl_graft.lab.experiments.comparison.jobs.Engine`."""
        running: dict[Future, Job] = {}
        with stop.saving():
            try:
                yield from self._spread(list(jobs), running, progress, stop)
            finally:
                _end(running)
        stop.check()

    def _spread(
        self, waiting: list[Job], running: dict[Future, Job], progress: Progress, stop: Stop
    ) -> Iterator[tuple[Job, Outcome]]:
        attempts: Counter[str] = Counter()
        failed_tunings: dict[tuple[Path, str], Failed] = {}
        over, total = 0, len(waiting)
        while (running or waiting) and stop.asked is None:
            for job in _ready(waiting, list(running.values())):
                failed = failed_tunings.get(job.strategy_key)
                if failed is None and len(running) >= self._max_running():
                    continue
                waiting.remove(job)
                if failed is not None:
                    over += 1
                    yield job, failed
                    continue
                attempts[job.name] += 1
                running[self.pool.submit(job, threads=self.threads)] = job
            time.sleep(_POLL_SECONDS)
            for future in [future for future in running if future.done()]:
                job = running.pop(future)
                try:
                    outcome = future.result()
                    if outcome is None:
                        raise WorkerDied("its worker was told to stop")
                except WorkerDied as death:
                    # To its folder nobody else writes while the comparison is locked.
                    release_dead(job.folder)
                    if attempts[job.name] < ATTEMPTS:
                        logger.warning("%s: %s; it goes on with another worker", job.name, death)
                        waiting.insert(0, job)
                        continue
                    outcome = Failed(f"its worker died {ATTEMPTS} times, last: {death}")
                if isinstance(outcome, Failed) and job.seed is None:
                    failed_tunings[job.strategy_key] = outcome
                over += 1
                progress(Step("over", over, total, "", job.title, job.seed or 0, job=job.name))
                yield job, outcome

    def _max_running(self) -> float:
        if self.max_jobs is not None:
            return self.max_jobs
        slots = self.pool.slots
        return math.inf if slots is None else slots + 1


def _end(running: dict[Future, Job]) -> None:
    """Let all workers save and stop, and free the folders of those that died of it."""
    for future in running:
        future.cancel()
    until = time.monotonic() + _STOP_SECONDS
    while not all(future.done() for future in running) and time.monotonic() < until:
        time.sleep(_POLL_SECONDS)
    for future, job in running.items():
        if future.done():
            try:
                future.result()
            except WorkerDied:
                release_dead(job.folder)


def _ready(waiting: Sequence[Job], running: Sequence[Job]) -> list[Job]:
    """List the jobs that wait for no tuning."""
    tunings = {job.strategy_key for job in (*waiting, *running) if job.seed is None}
    return [job for job in waiting if job.seed is None or job.strategy_key not in tunings]
