"""Workers on a Ray cluster (https://docs.ray.io): an existing one, or one started here."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cl_graft.errors import InputError, first_line
from cl_graft.lab.experiments.comparison.jobs import Failed, Job, Outcome
from cl_graft.lab.experiments.engines.dispatch import WorkerDied, work

_PATIENCE_SECONDS = 10.0
_OBJECTS = 128 << 20
"""Bytes of memory for the settings and results that processes send each other."""


@dataclass(frozen=True, eq=False)
class RayFuture:
    """A job on a Ray cluster, by the reference to its outcome; a `dispatch.Future`."""

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
