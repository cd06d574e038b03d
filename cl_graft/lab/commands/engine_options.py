"""The options of `compare` that say where its runs are computed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cl_graft.errors import InputError, nearest

if TYPE_CHECKING:
    from cl_graft.lab.experiments.comparison.jobs import Engine
    from cl_graft.lab.experiments.engines.dispatch import Pool


_ENGINES = ("local", "ray", "slurm")

_option = partial(typer.Option, rich_help_panel="Processes and machines")

EngineName = Annotated[
    str,
    _option(
        "--engine",
        metavar="|".join(_ENGINES),
        help="local: one run after another, in this process; ray or slurm: several at once.",
    ),
]
Address = Annotated[
    str | None,
    _option(
        metavar="HOST:PORT",
        help="A running Ray cluster, or auto to find it; without it, one is started here.",
    ),
]
Workers = Annotated[
    int | None,
    _option(
        min=1, help="Largest number of runs at once. Default: as many as the cores and GPUs allow."
    ),
]
CpusPerRun = Annotated[int, _option(min=1, help="Cores, and threads, per run.")]
GpusPerRun = Annotated[
    float, _option(min=0.0, help="GPUs per run; with Ray, two runs of 0.5 share one.")
]
EngineSets = Annotated[
    list[str] | None,
    _option(
        "--engine-set",
        metavar="NAME=VALUE",
        help="A parameter of submitit, such as slurm_partition=gpu; may be repeated.",
    ),
]


@contextmanager
def open_engine(
    name: str,
    out: Path,
    *,
    address: str | None,
    workers: int | None,
    cpus: int,
    gpus: float,
    parameters: list[str] | None,
) -> Iterator[Engine | None]:
    """Open an engine for the length of a `with` block; None computes here."""
    if name not in _ENGINES:
        raise InputError(f"unknown engine {name!r}: {nearest(name, _ENGINES)}")
    own: dict[str, object] = {
        "--address": address is not None and name != "ray",
        "--engine-set": bool(parameters) and name != "slurm",
        "--workers": workers is not None and name == "local",
        "--cpus-per-run": cpus != 1 and name == "local",
        "--gpus-per-run": gpus != 0.0 and name == "local",
    }
    if foreign := [option for option, given in own.items() if given]:
        raise InputError(f"{', '.join(foreign)}: not an option of the engine {name!r}")
    if name == "local":
        yield None
        return
    from cl_graft.lab.experiments.engines.dispatch import PoolEngine
    from cl_graft.lab.experiments.engines.ray import ray_pool
    from cl_graft.lab.experiments.engines.slurm import slurm_pool

    pool: Pool
    if name == "ray":
        pool = ray_pool(address=address, workers=workers, cpus=cpus, gpus=gpus)
    else:
        if gpus != int(gpus):
            raise InputError(f"SLURM gives whole GPUs, got --gpus-per-run {gpus:g}")
        given = dict(_parameter(text) for text in parameters or ())
        pool = slurm_pool(out, cpus=cpus, gpus=int(gpus), parameters=given)
    try:
        yield PoolEngine(pool, threads=cpus, max_jobs=workers)
    finally:
        pool.close()


def _parameter(text: str) -> tuple[str, Any]:
    from cl_graft.data.yaml_files import read_yaml

    name, equals, value = text.partition("=")
    if not (name and equals):
        raise InputError(f"--engine-set takes NAME=VALUE, got {text!r}")
    return name, read_yaml(value, place=f"--engine-set {text}")
