"""Workers as jobs of a SLURM cluster, through submitit.

Each run is a SLURM job of its own (https://github.com/facebookincubator/submitit): it waits in the
queue as any other, and one that SLURM ends (time limit, preemption, a machine lost) is queued
again and resumes from its last checkpoint.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cl_graft.errors import InputError
from cl_graft.lab.experiments import folders
from cl_graft.lab.experiments.comparison.jobs import Failed, Outcome
from cl_graft.lab.experiments.engines.dispatch import WorkerDied
from cl_graft.lab.experiments.engines.worker import WorkerJob, work

__all__ = ["SlurmPool", "slurm_pool"]


@dataclass(frozen=True)
class SlurmPool:
    """A queue of SLURM.

    Attributes:
        submitit: The module.
        executor: Submits jobs.
        folder: Folder of scripts, logs and sent jobs (pickles), deleted when the pool is closed.
        jobs: Submitted jobs, by their number.
    """

    submitit: Any
    executor: Any
    folder: Path
    jobs: dict[str, Any] = field(default_factory=dict)

    @property
    def slots(self) -> None:
        """None, as the queue decides."""
        return None

    def submit(self, sent: WorkerJob) -> str:
        """Queue a job."""
        job = self.executor.submit(work, sent)
        self.jobs[job.job_id] = job
        return job.job_id

    def wait(self, handles: Sequence[str], seconds: float) -> Sequence[str]:
        """Wait, and return what is over; see `cl_graft.lab.experiments.engines.dispatch.Pool`."""
        until = time.monotonic() + seconds
        while True:
            done = [handle for handle in handles if self.jobs[handle].done()]
            if done or time.monotonic() >= until:
                return done
            time.sleep(min(0.1, seconds))

    def outcome(self, handle: str) -> Outcome | None:
        """Return the outcome of a job.

        Raises:
            WorkerDied: If SLURM, or something else, ended it.
        """
        job = self.jobs.pop(handle)
        try:
            return job.result()
        except self.submitit.core.utils.FailedJobError as error:  # before the job began
            return Failed(f"{type(error).__name__}: {_last_line(error)}")
        except self.submitit.core.utils.UncompletedJobError as error:
            raise WorkerDied(f"job {handle} ended without a result, as {job.state}") from error

    def close(self) -> None:
        """Cancel what is queued or runs."""
        for job in self.jobs.values():
            if not job.done():
                job.cancel()
        shutil.rmtree(self.folder, ignore_errors=True)


def slurm_pool(
    out: Path,
    *,
    cpus: int = 1,
    gpus: int = 0,
    parameters: Mapping[str, Any] | None = None,
    cluster: str = "slurm",
) -> SlurmPool:
    """Open a queue.

    Args:
        out: The comparison's folder, on a file system that all machines share; scripts and logs are
            in it until the end.
        cpus: Cores a job.
        gpus: GPUs a job.
        parameters: Further parameters of submitit, such as
            ``{"slurm_partition": "gpu", "timeout_min": 240}``.
        cluster: ``"slurm"``, or ``"local"`` for processes of this machine.

    Raises:
        InputError: If submitit is not installed, there is no SLURM here, or it does not know a
            parameter.
    """
    try:
        import submitit
    except ImportError:
        raise InputError(
            "the engine 'slurm' needs submitit: python -m pip install 'cl-graft[slurm]'"
        ) from None
    if cluster == "slurm" and shutil.which("srun") is None:
        raise InputError(
            "there is no SLURM here: 'srun' is not on the PATH; start the comparison on a machine "
            "from which jobs are submitted"
        )
    folder = out.resolve() / folders.ENGINE
    executor = submitit.AutoExecutor(folder=str(folder / "jobs"), cluster=cluster)
    own = {"cpus_per_task": cpus, "gpus_per_node": gpus, "name": "cl-graft"}
    try:
        executor.update_parameters(**own, **dict(parameters or {}))
    except (NameError, TypeError, ValueError) as error:
        raise InputError(f"submitit does not take these parameters: {error}") from None
    return SlurmPool(submitit, executor, folder)


def _last_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip("- \t")]
    return lines[-1] if lines else type(error).__name__
