"""The engine that gives the jobs of a comparison to workers: of Ray, or of SLURM by submitit.

The workers share the comparison's folder. A job whose worker dies resumes from its last checkpoint
on another, up to a number of times. https://docs.ray.io,
https://github.com/facebookincubator/submitit
"""

from __future__ import annotations

import logging
import math
import os
import shutil
import socket
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch

from cl_graft.errors import InputError, first_line
from cl_graft.lab.experiments import folders
from cl_graft.lab.experiments.comparison.compare import Failed, Job, Outcome, attempt
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
        """Do the jobs; see `cl_graft.lab.experiments.comparison.compare.Engine`."""
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


_PATIENCE_SECONDS = 10.0
_OBJECTS = 128 << 20
"""Bytes of memory for the settings and results that processes send each other."""


@dataclass(frozen=True, eq=False)
class RayFuture:
    """A job on a Ray cluster, by the reference to its outcome; a `Future`."""

    ray: Any
    reference: Any

    def done(self) -> bool:
        """Tell whether the job is over, or its worker is dead."""
        return bool(self.ray.wait([self.reference], timeout=0)[0])

    def result(self) -> Outcome | None:
        """Return the outcome; its process or machine may be gone, or took too much memory."""
        errors = self.ray.exceptions
        try:
            return self.ray.get(self.reference)
        except errors.TaskCancelledError:  # before or while it stopped
            return None
        except errors.RayTaskError as error:  # before the job began: no package there, maybe
            return Failed(f"{type(error.cause).__name__}: {error.cause}")
        except errors.RayError as error:
            raise WorkerDied(_first_sentence(error)) from error

    def cancel(self) -> None:
        """Interrupt the job as Ctrl-C does."""
        self.ray.cancel(self.reference)


@dataclass(frozen=True)
class RayPool:
    """The workers of a Ray cluster that this process is connected to.

    `remote` is the remote function that does a job, on so many cores and GPUs.
    """

    ray: Any
    remote: Any
    cpus: int
    gpus: float

    @property
    def slots(self) -> int:
        """Number of jobs that the cluster can do at once now."""
        there = self.ray.cluster_resources()
        places = there.get("CPU", 0) // self.cpus
        if self.gpus:
            places = min(places, there.get("GPU", 0) // self.gpus)
        return int(places)

    def submit(self, job: Job, *, threads: int) -> RayFuture:
        """Give a job to the next free worker."""
        remote = self.remote.options(name=job.name)
        return RayFuture(self.ray, remote.remote(job, threads, Path.cwd()))

    def close(self) -> None:
        """Leave the cluster, and end it if it was started for this."""
        self.ray.shutdown()


def ray_pool(
    *, address: str | None = None, workers: int | None = None, cpus: int = 1, gpus: float = 0.0
) -> RayPool:
    """Connect to the Ray cluster at an address, or start one here, which ends with the pool.

    A cluster that is started here gets cores for `workers`, or as many as fit on the machine.

    Raises:
        InputError: If Ray is not installed, the cluster cannot be reached, or none of its machines
            has what a worker needs.
    """
    try:
        import ray
        import ray.exceptions
    except ImportError:
        raise InputError(
            "the engine 'ray' needs Ray: python -m pip install 'cl-graft[ray]'"
        ) from None
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
    if address is None:
        count = workers or max(1, (os.cpu_count() or 1) // cpus)
        start = {"num_cpus": count * cpus, "object_store_memory": _OBJECTS}
        ray.init(address="local", include_dashboard=False, **start, **quiet)
    else:
        try:
            _check_address(address)
            ray.init(address=address, **quiet)
        except (OSError, ValueError, RuntimeError) as error:
            raise InputError(
                f"no Ray cluster answers at {address}: {_first_sentence(error)}; "
                "start one with: ray start --head"
            ) from None
    try:
        check_resources(ray.nodes(), cpus=cpus, gpus=gpus)
    except InputError:
        ray.shutdown()
        raise
    remote = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=0)(work)
    return RayPool(ray, remote, cpus, gpus)


def _check_address(address: str) -> None:
    """Raise an OSError unless a process listens at HOST:PORT: Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE_SECONDS).close()


def check_resources(nodes: Sequence[dict[str, Any]], *, cpus: int, gpus: float) -> None:
    """Raise an InputError unless one of `ray.nodes()` can hold a worker, as Ray would only wait."""
    alive = [node["Resources"] for node in nodes if node["Alive"]]
    if any(node.get("CPU", 0) >= cpus and node.get("GPU", 0) >= gpus for node in alive):
        return
    there = "; ".join(f"{node.get('CPU', 0):g} CPUs, {node.get('GPU', 0):g} GPUs" for node in alive)
    raise InputError(
        f"no machine of the cluster has {cpus} CPUs and {gpus:g} GPUs for a run (there are: "
        f"{there}); lower --cpus-per-run or --gpus-per-run, or add machines"
    )


def _first_sentence(error: BaseException) -> str:
    return f"{type(error).__name__}: {first_line(error).split('. ')[0]}"


@dataclass(frozen=True, eq=False)
class SlurmFuture:
    """A job of SLURM, as submitit gives it; a `Future`."""

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
    resources = {"cpus_per_task": cpus, "gpus_per_node": gpus, "name": "cl-graft"}
    try:
        executor.update_parameters(**resources, **dict(parameters or {}))
    except (NameError, TypeError, ValueError) as error:
        raise InputError(f"submitit does not take these parameters: {error}") from None
    return SlurmPool(submitit, executor, folder)


def _last_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip("- \t")]
    return lines[-1] if lines else type(error).__name__
