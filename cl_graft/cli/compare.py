"""`compare`: a stream learned with several strategies and seeds, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cl_graft.cli.engine_options import (
    Address,
    Cpus_per_cell,
    Engine_name,
    Engine_sets,
    Gpus_per_cell,
    Workers,
    opened_engine,
)
from cl_graft.cli.options import (
    COMPARED,
    As_json,
    Chosen,
    Quiet,
    Resume,
    Sets,
    refuse_others,
    with_settings,
)
from cl_graft.cli.output import Output, apart
from cl_graft.cli.progress import meter
from cl_graft.errors import InputError
from cl_graft.runtime.signals import stoppable

if TYPE_CHECKING:
    from cl_graft.experiments.comparison.jobs import Engine
    from cl_graft.experiments.config import ExperimentConfig
    from cl_graft.results.comparison import Comparison

__all__ = ["compare_command", "failures_of", "json_content", "watched_comparison"]


@with_settings(more=COMPARED)
def compare_command(
    chosen: Chosen,
    config: Annotated[
        Path | None,
        typer.Argument(metavar="CONFIG.yaml", help="Settings; the options go before them."),
    ] = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=A,B,C",
            help="Compare with each of several values of a setting (grafting.density=5e-4,0.002), "
            "or of a strategy's own (ewc.ewc_lambda=1,10); may be repeated.",
            show_default=False,
            rich_help_panel="What is compared",
        ),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where to write.")] = Path("runs"),
    resume: Resume = None,
    sets: Sets = None,
    engine: Engine_name = "local",
    address: Address = None,
    workers: Workers = None,
    cpus_per_cell: Cpus_per_cell = 1,
    gpus_per_cell: Gpus_per_cell = 0.0,
    engine_set: Engine_sets = None,
    quiet: Quiet = False,
    as_json: As_json = False,
) -> None:
    """Learn a stream with several strategies and seeds, and compare them.

    Writes OUT/STRATEGY/seedN for each, and OUT/summary.md. What an option does not say is as in
    the config file, or the default.

    [b]Examples[/b]

      cl-graft compare --tasks sentiment,topic,paraphrase --out first

      cl-graft compare --data glue --tasks qnli,ag_news,sst2_sent --shots 512 --density 0.002 --seeds 0,1,2 --out table4

      cl-graft compare stream.yaml --strategies grafting --set grafting.mask_steps=20

      cl-graft compare stream.yaml --strategies all --seeds 0,1,2 --tune --out tuned

      cl-graft compare stream.yaml --strategies grafting,lora,bitfit --bytes-per-task 100kB

      cl-graft compare --tasks sentiment,topic,paraphrase --orders all --out orders

      cl-graft compare stream.yaml --strategies grafting,naive --sweep grafting.density=5e-4,0.002 --out sweep

      cl-graft compare stream.yaml --seeds 0,1,2 --engine ray --workers 8 --out wide

      cl-graft compare --resume first
    """  # noqa: E501  a command is one line
    from cl_graft.cli.run_tables import comparison_table, data_notes, run_tables
    from cl_graft.experiments.config import load_config
    from cl_graft.experiments.resume import stored_comparison

    output = Output(quiet, as_json)
    if resume is not None:
        trusted, others = chosen.trust()
        refuse_others("--resume", config, sets, others.values or sweep)
        out = resume
        settings, started_by = stored_comparison(out, trust_remote_code=trusted)
    else:
        swept = [_as_set(text) for text in sweep or ()]
        told = dict.fromkeys([text.partition("=")[0] for text in swept], "--sweep")
        settings = load_config(
            config,
            [*swept, *(sets or ())],
            options=chosen.values,
            origins={**chosen.options, **told},
        )
        started_by = None
    with opened_engine(
        engine, out, address=address, workers=workers, cpus=cpus_per_cell, gpus=gpus_per_cell,
        parameters=engine_set,
    ) as opened:  # fmt: skip
        comparison = watched_comparison(settings, out, output, started_by=started_by, engine=opened)
    shown = (
        comparison.runs if settings.comparison.orders == 1 and not settings.comparison.sweep else ()
    )
    tables = [made for cell in shown for made in run_tables(cell)]
    output.result(
        json_content(comparison),
        *tables,
        comparison_table(comparison.runs),
        *data_notes(comparison.runs),
        *failures_of(comparison),
        *_unmet(comparison),
        *_where(comparison),
    )
    if comparison.failed:
        raise typer.Exit(1)


def watched_comparison(
    config: ExperimentConfig,
    out: Path,
    output: Output,
    *,
    started_by: str | None = None,
    engine: Engine | None = None,
) -> Comparison:
    """Learn the cells of a config with progress shown and signals caught."""
    from cl_graft.experiments.comparison.compare import compare
    from cl_graft.experiments.comparison.sweep import expand_sweep
    from cl_graft.experiments.comparison.tuning import runs_to_choose
    from cl_graft.experiments.folders import resume_command

    each = [point.config for point in expand_sweep(config)]
    tasks = sum(len(one.stream.tasks) * _cells(one) for one in each)
    tasks += sum(min(2, len(one.stream.tasks)) * runs_to_choose(one) for one in each)
    if config.stream.classes_per_experience is not None:
        tasks = 0  # not known before the data are read
    with (
        stoppable(resume_command("compare", out, config), out) as stop,
        apart(),
        meter(output, tasks=tasks) as progress,
    ):
        return compare(
            config,
            out=out,
            progress=progress.step,
            started_by=started_by,
            stop=stop,
            engine=engine,
        )


def _cells(config: ExperimentConfig) -> int:
    return len(config.comparison.strategies) * len(config.comparison.seeds)


def _as_set(text: str) -> str:
    """Return what ``--sweep NAME=A,B,C`` asks for as ``--set`` would."""
    name, equals, values = text.partition("=")
    if not (name and equals and values):
        raise InputError(f"--sweep takes NAME=A,B,C, got {text!r}")
    return f"comparison.sweep.{name.strip()}=[{values}]"


def json_content(comparison: Comparison) -> dict[str, object]:
    """Return what ``--json`` writes of a comparison."""
    summary = comparison.summary or {"failed": comparison.failed}
    return {"comparison": summary, "runs": comparison.runs}


def failures_of(comparison: Comparison) -> list[str]:
    """Name the cells that failed, a line each."""
    return [
        f"FAILED: {failure.strategy} seed {failure.seed}: {failure.error}"
        for failure in comparison.failed
    ]


def _where(comparison: Comparison) -> list[str]:
    """Say where the results are, if there are any."""
    if not comparison.runs:
        return ["Nothing was learned: the folder is free for another start."]
    out = comparison.out
    return [f"Results: {out / 'summary.md'}; curves: tensorboard --logdir {out}"]


def _unmet(comparison: Comparison) -> list[str]:
    budget = comparison.summary.budget if comparison.summary else None
    unmet = budget.unmet if budget else {}
    return [f"Left out: {name}: {reason}" for name, reason in unmet.items()]
