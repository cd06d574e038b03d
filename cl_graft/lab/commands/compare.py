"""The command `compare`: a stream learned with several strategies and seeds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cl_graft.cli import options
from cl_graft.cli.options import argument, option
from cl_graft.cli.output import Output, redirect_prints
from cl_graft.cli.progress import show_progress
from cl_graft.errors import InputError, nearest
from cl_graft.runtime.signals import stoppable

if TYPE_CHECKING:
    from cl_graft.lab.experiments.comparison.compare import Engine
    from cl_graft.lab.experiments.engines import Pool
    from cl_graft.lab.results.comparison import Comparison
    from cl_graft.settings import ExperimentConfig


_ENGINES = ("local", "ray", "slurm")

_WHERE = "Processes and machines"
_option = partial(typer.Option, rich_help_panel=_WHERE)


@options.with_settings(more=options.COMPARED)
def compare_command(
    chosen: options.Chosen,
    config: Annotated[
        Path | None, argument("CONFIG.yaml", "Config file; options override it.")
    ] = None,
    sweep: Annotated[
        list[str] | None,
        option(
            "NAME=A,B,C",
            "Compare with each of several values of a setting (grafting.density=5e-4,0.002), "
            "or of a strategy's own (ewc.ewc_lambda=1,10); may be repeated.",
            panel="What is compared",
        ),
    ] = None,
    out: options.Out = None,
    resume: options.Resume = None,
    sets: options.Sets = None,
    engine: Annotated[
        str,
        option(
            "|".join(_ENGINES),
            "local: one run after another, in this process; ray or slurm: several at once.",
            panel=_WHERE,
        ),
    ] = "local",
    address: Annotated[
        str | None,
        option(
            "HOST:PORT",
            "A running Ray cluster, or auto to find it; without it, one is started here.",
            panel=_WHERE,
        ),
    ] = None,
    workers: Annotated[
        int | None,
        _option(
            min=1,
            help="Largest number of runs at once. Default: as many as the cores and GPUs allow.",
        ),
    ] = None,
    cpus_per_run: Annotated[int, _option(min=1, help="Cores, and threads, per run.")] = 1,
    gpus_per_run: Annotated[
        float, _option(min=0.0, help="GPUs per run; with Ray, two runs of 0.5 share one.")
    ] = 0.0,
    engine_set: Annotated[
        list[str] | None,
        option(
            "NAME=VALUE",
            "A parameter of submitit, such as slurm_partition=gpu; may be repeated.",
            panel=_WHERE,
        ),
    ] = None,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Learn a stream with several strategies and seeds, and compare them.

    Each run is written to OUT/STRATEGY/seedN, and the comparison to OUT/summary.md. Settings
    without an option are those of the config file, or the defaults.

    [b]Examples[/b]

      cl-graft compare --tasks scope,topic,entailment --out first

      cl-graft compare --data glue --tasks qnli,ag_news,sst2_sent --shots 512 --density 0.002 --seeds 0,1,2 --out table4

      cl-graft compare stream.yaml --strategies grafting --set grafting.dense_share=0.5

      cl-graft compare stream.yaml --strategies all --seeds 0,1,2 --tune --out tuned

      cl-graft compare stream.yaml --strategies grafting,lora,bitfit --bytes-per-task 100kB

      cl-graft compare --tasks scope,topic,entailment --orders all --out orders

      cl-graft compare stream.yaml --strategies grafting,naive --sweep grafting.density=5e-4,0.002 --out sweep

      cl-graft compare stream.yaml --seeds 0,1,2 --engine ray --workers 8 --out wide

      cl-graft compare --resume first
    """  # noqa: E501  a command is one line
    from cl_graft.lab.commands import run_tables
    from cl_graft.lab.experiments.folders import stored_comparison
    from cl_graft.settings import load_config

    output = Output(quiet, as_json)
    if resume is not None:
        trusted, others = chosen.trust()
        options.refuse_others(config, sets, others.values or sweep or out)
        out = resume
        settings, started_by = stored_comparison(out, trust_remote_code=trusted)
    else:
        out = out or options.RUNS
        given = {*chosen.values, *(text.partition("=")[0].strip() for text in sets or ())}
        if {"grafting.density", "comparison.bytes_per_task"} <= given:
            raise InputError("--bytes-per-task chooses the density of regions: leave --density out")
        swept = [_sweep_to_set(text) for text in sweep or ()]
        origins = dict.fromkeys([text.partition("=")[0] for text in swept], "--sweep")
        settings = load_config(
            config,
            [*swept, *(sets or ())],
            options=chosen.values,
            origins={**chosen.options, **origins},
        )
        started_by = None
    with open_engine(
        engine, out, address=address, workers=workers, cpus=cpus_per_run, gpus=gpus_per_run,
        parameters=engine_set,
    ) as opened:  # fmt: skip
        comparison = run_comparison(settings, out, output, started_by=started_by, engine=opened)
    several = settings.comparison.orders != 1 or settings.comparison.sweep
    budget = comparison.summary.budget if comparison.summary else None
    output.result(
        run_tables.to_json_content(comparison),
        *(run_tables.show_scores(run) for run in comparison.runs if not several),
        *run_tables.show_summary(comparison.summary),
        *run_tables.list_data_notes(comparison.runs),
        *run_tables.list_failures(comparison, settings),
        *(
            f"Left out: {name}: {reason}"
            for name, reason in (budget.unmet if budget else {}).items()
        ),
        *(_name_files(out) if comparison.runs else ()),
    )
    if comparison.failed:
        raise typer.Exit(1)


def run_comparison(
    config: ExperimentConfig,
    out: Path,
    output: Output,
    *,
    started_by: str | None = None,
    engine: Engine | None = None,
) -> Comparison:
    """Run a comparison with progress shown and signals caught."""
    from cl_graft.lab.experiments.comparison.compare import compare
    from cl_graft.lab.experiments.comparison.sweep import expand_sweep
    from cl_graft.lab.experiments.comparison.tuning import runs_to_choose
    from cl_graft.lab.experiments.folders import resume_command
    from cl_graft.lab.experiments.run_setup import keep_able_strategies

    config = keep_able_strategies(config)
    each = [single.config for single in expand_sweep(config)]
    runs = sum(len(single.comparison.strategies) * len(single.comparison.seeds) for single in each)
    tuned = sum(map(runs_to_choose, each))
    tasks = len(config.stream.tasks) * runs + min(2, len(config.stream.tasks)) * tuned
    if config.comparison.tune and not tuned:
        output.note(
            "nothing is tuned: the strategies have no values to choose, or the config gives them"
        )
    if config.stream.classes_per_experience is not None:
        tasks = 0  # not known before the data are read
    with (
        stoppable(resume_command("compare", out, config), out) as stop,
        redirect_prints(),
        show_progress(output, tasks=tasks) as progress,
    ):
        return compare(
            config, out=out, progress=progress.step, started_by=started_by, stop=stop, engine=engine
        )


def _sweep_to_set(text: str) -> str:
    """Return what ``--sweep NAME=A,B,C`` asks for as ``--set`` would."""
    name, equals, values = text.partition("=")
    if not (name and equals and values):
        raise InputError(f"--sweep takes NAME=A,B,C, got {text!r}")
    return f"comparison.sweep.{name.strip()}=[{values}]"


def _name_files(out: Path) -> list[str]:
    """Say where the results are, and what to do with them."""
    from cl_graft.lab.experiments.folders import CURVES

    # The runs of a sweep lie in folders of their own.
    curves = out / CURVES if (out / CURVES).is_dir() else out
    return [
        f"Results: {out / 'summary.md'}; curves: tensorboard --logdir {quote(str(curves))}",
        f"Next: cl-graft report {quote(str(out))}",
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
    refused: dict[str, object] = {
        "--address": address is not None and name != "ray",
        "--engine-set": bool(parameters) and name != "slurm",
        "--workers": workers is not None and name == "local",
        "--cpus-per-run": cpus != 1 and name == "local",
        "--gpus-per-run": gpus != 0.0 and name == "local",
    }
    if foreign := [flag for flag, given in refused.items() if given]:
        raise InputError(f"{', '.join(foreign)}: not an option of the engine {name!r}")
    if name == "local":
        yield None
        return
    from cl_graft.lab.experiments.engines import PoolEngine, ray_pool, slurm_pool

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
    return name, read_yaml(value, origin=f"--engine-set {text}")
