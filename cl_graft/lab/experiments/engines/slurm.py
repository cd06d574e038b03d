"""Workers as jobs of a SLURM cluster, through https://github.com/facebookincubator/submitit."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cl_graft.errors import InputError
from cl_graft.lab.experiments import folders
from cl_graft.lab.experiments.comparison.jobs import Failed, Job, Outcome
from cl_graft.lab.experiments.engines.dispatch import WorkerDied, work


@dataclass(frozen=True, eq=False)
class SlurmFuture:
    """A job of SLURM, as submitit gives it; a `dispatch.Future`."""

    submitit: Any
    job: Any

    def done(self) -> bool:
        """Tell whether the job is over."""
        return self.job.done()

    def result(self) -> Outcome | None:
        """Return the outcome, unless SLURM, or something else, ended the job."""
        errors = self.submitit.core.utils
        try:
            return self.job.result()
        except errors.FailedJobError as error:  # before the job began
            return Failed(f"{type(error).__name__}: {_last_line(error)}")
        except errors.UncompletedJobError as error:
            state = self.job.state
            raise WorkerDied(f"job {self.job.job_id} ended without a result, as {state}") from error

    def cancel(self) -> None:
        """Let SLURM send SIGTERM, and kill the job where it takes too long."""
        self.job.cancel()


@dataclass(frozen=True)
class SlurmPool:
    """A queue of SLURM.

    The folder holds scripts, logs and sent jobs (pickles); it is deleted when the pool is closed.
    """

    submitit: Any
    executor: Any
    folder: Path
    jobs: list[SlurmFuture] = field(default_factory=list)
    slots: None = None

    def submit(self, job: Job, *, threads: int) -> SlurmFuture:
        """Queue a job."""
        submitted = self.executor.submit(work, job, threads, Path.cwd())
        self.jobs.append(SlurmFuture(self.submitit, submitted))
        return self.jobs[-1]

    def close(self) -> None:
        """Cancel what is queued or runs."""
        for future in self.jobs:
            if not future.done():
                future.cancel()
        shutil.rmtree(self.folder, ignore_errors=True)


def slurm_pool(
    out: Path,
    *,
    cpus: int = 1,
    gpus: int = 0,
    parameters: Mapping[str, Any] | None = None,
    cluster: str = "slurm",
) -> SlurmPool:
    """Open a queue for the comparison in a folder, on a file system that all machines share.

    `parameters` are further ones of submitit, such as ``{"slurm_partition": "gpu"}``; the cluster
    ``"local"`` means processes of this machine.

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
