"""What a worker does: one job, in a process and on a machine of its own."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from cl_graft.experiments.comparison.jobs import Job, Outcome, attempt
from cl_graft.experiments.engines.message_board import Board, Pin
from cl_graft.runtime.memory_allocator import keep_freed_memory
from cl_graft.runtime.signals import Stop, Stopped

__all__ = ["Order", "work"]


@dataclass(frozen=True)
class Order:
    """A job as it is sent to a worker.

    Attributes:
        job: The job.
        board: Where it shows its steps.
        threads: How many threads it computes with: results depend on them in their last bits.
        place: The folder that relative paths in the settings start from.
    """

    job: Job
    board: Board
    threads: int
    place: Path


def work(order: Order) -> Outcome | None:
    """Do a job; None if it was asked to stop, with all that it reached saved."""
    torch.set_num_threads(order.threads)
    keep_freed_memory()
    with suppress(OSError):  # a machine may have no such folder, and paths may all be absolute
        os.chdir(order.place)
    stop = Stop()
    try:
        return attempt(order.job, progress=Pin(order.board, order.job, stop), stop=stop)
    except Stopped:
        return None
