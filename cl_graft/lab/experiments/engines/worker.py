"""The work of a worker: one job of a comparison, in a process of its own."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from cl_graft.lab.experiments.comparison.jobs import Job, Outcome, attempt
from cl_graft.lab.experiments.engines.message_board import MessageBoard, StepReporter
from cl_graft.runtime.native_libraries import keep_freed_memory
from cl_graft.runtime.signals import Stop, Stopped

__all__ = ["WorkerJob", "work"]


@dataclass(frozen=True)
class WorkerJob:
    """A job as it is sent to a worker.

    Attributes:
        job: The job.
        board: Message board that its steps are written to.
        threads: Number of threads that it computes with; the last bits of results depend on it.
        folder: Folder that relative paths in the settings start from.
    """

    job: Job
    board: MessageBoard
    threads: int
    folder: Path


def work(sent: WorkerJob) -> Outcome | None:
    """Do a job; None if it was asked to stop, with all that it reached saved."""
    torch.set_num_threads(sent.threads)
    keep_freed_memory()
    with suppress(OSError):  # a machine may have no such folder, and paths may all be absolute
        os.chdir(sent.folder)
    stop = Stop()
    try:
        return attempt(sent.job, progress=StepReporter(sent.board, sent.job, stop), stop=stop)
    except Stopped:
        return None
