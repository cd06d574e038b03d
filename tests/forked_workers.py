"""A pool whose workers are forked from one process that has imported the package.

A worker of a cluster imports torch, transformers and Avalanche first, which takes seconds.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from warm_processes import imported_first

from cl_graft.experiments import stream_run
from cl_graft.experiments.comparison.jobs import Outcome
from cl_graft.experiments.engines.dispatch import WorkerDied
from cl_graft.experiments.engines.worker import WorkerJob, work

__all__ = ["ForkedPool"]


class ForkedPool:
    """Two workers; the handle of a job is the end of a pipe that its outcome comes through."""

    slots = 2

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([*imported_first(), __name__])
        self._workers: dict[Connection, BaseProcess] = {}

    def submit(self, sent: WorkerJob) -> Connection:
        ours, theirs = self._context.Pipe(duplex=False)
        worker = self._context.Process(target=_work, args=(sent, theirs))
        worker.start()
        theirs.close()
        self._workers[ours] = worker
        return ours

    def wait(self, handles: Sequence[Connection], seconds: float) -> list[Connection]:
        return [handle for handle in wait(handles, seconds) if isinstance(handle, Connection)]

    def outcome(self, handle: Connection) -> Outcome | None:
        worker = self._workers.pop(handle)
        try:
            return handle.recv()
        except EOFError:
            raise WorkerDied(f"process {worker.pid} is gone") from None
        finally:
            handle.close()
            worker.join()

    def close(self) -> None:
        for worker in self._workers.values():
            worker.kill()
            worker.join()


def _work(sent: WorkerJob, outcome: Connection) -> None:
    # Pictures of a run's log are left out, as in the process that tests.
    stream_run.draw_pictures = lambda *_: None
    outcome.send(work(sent))
