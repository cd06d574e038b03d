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
    As_json,
    Data,
    Device,
    Model,
    On_bad_row,
    Quiet,
    Resume,
    Sets,
    Trusted,
    refuse_others,
)
from cl_graft.cli.output import Output, apart, given
from cl_graft.cli.progress import meter
from cl_graft.errors import InputError
from cl_graft.runtime.signals import stoppable

if TYPE_CHECKING:
    from cl_graft.experiments.comparison.jobs import Engine
    from cl_graft.experiments.config import ExperimentConfig
    from cl_graft.results.comparison import Comparison

__all__ = ["compare_command", "failures_of", "json_content", "watched_comparison"]

_STREAM, _TRAINING, _REGION = "The stream", "Training", "The region"


def compare_command(
    config: Annotated[
        Path | None,
        typer.Argument(metavar="CONFIG.yaml", help="Settings; the options go before them."),
    ] = None,
    data: Data = None,
    tasks: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,C",
            help="Tasks in the order of the stream: presets (qnli), built-in ones (sentiment), "
            "paths, hub names.",
            rich_help_panel=_STREAM,
            show_default=False,
        ),
    ] = None,
    scenario: Annotated[
        str | None,
        typer.Option(
            metavar="task|domain|class",
            help="A head a task, picked by the task's label; or one head and no task labels, for "
            "tasks with the same labels, or for the labels of all tasks.",
            rich_help_panel=_STREAM,
            show_default=False,
        ),
    ] = None,
    classes_per_experience: Annotated[
        int | None,
        typer.Option(
            help="Split tasks into experiences of so many classes (scenario class).",
            rich_help_panel=_STREAM,
            show_default=False,
        ),
    ] = None,
    model: Model = None,
    family: Annotated[
        str | None,
        typer.Option(
            metavar="encoder|masked_lm|causal_lm", help="How it answers.", show_default=False
        ),
    ] = None,
    pooling: Annotated[
        str | None,
        typer.Option(metavar="mean|first", help="Of an encoder's states.", show_default=False),
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(metavar="fp32|bf16|fp16", help="In which it computes.", show_default=False),
    ] = None,
    shots: Annotated[
        int | None,
        typer.Option(help="Training rows a class.", rich_help_panel=_STREAM, show_default=False),
    ] = None,
    shots_short: Annotated[
        str | None,
        typer.Option(
            metavar="error|all",
            help="What to do with a class that has fewer.",
            rich_help_panel=_STREAM,
            show_default=False,
        ),
    ] = None,
    max_length: Annotated[
        int | None, typer.Option(help="Tokens a row.", rich_help_panel=_STREAM, show_default=False)
    ] = None,
    max_test: Annotated[
        int | None,
        typer.Option(help="Most test rows a task.", rich_help_panel=_STREAM, show_default=False),
    ] = None,
    on_bad_row: On_bad_row = None,
    strategies: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,C",
            help="Default: grafting,naive,independent. all: see cl-graft strategies.",
            show_default=False,
        ),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(metavar="0-2,5", help="Numbers and ranges. Default: 0.", show_default=False),
    ] = None,
    orders: Annotated[
        str | None,
        typer.Option(
            metavar="N|all",
            help="Compare on so many orders of the tasks, the given one first.",
            rich_help_panel=_STREAM,
            show_default=False,
        ),
    ] = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=A,B,C",
            help="Compare with each of several values of a setting, or of a strategy's own "
            "(ewc.ewc_lambda=1,10); may be repeated.",
            show_default=False,
        ),
    ] = None,
    tune: Annotated[
        bool,
        typer.Option(
            "--tune",
            help="First choose each strategy's own values from its grid, on dev rows of the first "
            "two tasks.",
        ),
    ] = False,
    bytes_per_task: Annotated[
        str | None,
        typer.Option(
            metavar="100kB",
            help="Make every strategy as large as fits into so many bytes a task.",
            show_default=False,
        ),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            metavar="default|paper|fast",
            help="paper: its schedule, its grid, its mask, density 1e-4: hours, not minutes. "
            "fast: regions from a few gradients at the base, no dense run.",
            rich_help_panel=_TRAINING,
            show_default=False,
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(help="Steps of each training.", rich_help_panel=_TRAINING, show_default=False),
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Rows a step.", rich_help_panel=_TRAINING, show_default=False)
    ] = None,
    lr: Annotated[
        float | None,
        typer.Option(help="Learning rate, dense.", rich_help_panel=_TRAINING, show_default=False),
    ] = None,
    region_lr: Annotated[
        float | None,
        typer.Option(help="Learning rate, region.", rich_help_panel=_TRAINING, show_default=False),
    ] = None,
    density: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE",
            help="Share of the weights in a region, in (0, 1], or auto.",
            rich_help_panel=_REGION,
            show_default=False,
        ),
    ] = None,
    localizer: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="How a region is found: learned_mask, movement, …",
            rich_help_panel=_REGION,
            show_default=False,
        ),
    ] = None,
    mode: Annotated[
        str | None,
        typer.Option(
            metavar="prefix|isolated",
            help="Answer with all grafts so far, or with a task's own alone.",
            rich_help_panel=_REGION,
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where to write.")] = Path("runs"),
    resume: Resume = None,
    trust_remote_code: Trusted = False,
    sets: Sets = None,
    device: Device = None,
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

      cl-graft compare stream.yaml --strategies grafting --set mask_steps=20

      cl-graft compare stream.yaml --strategies all --seeds 0,1,2 --tune --out tuned

      cl-graft compare stream.yaml --strategies grafting,lora,bitfit --bytes-per-task 100kB

      cl-graft compare --tasks sentiment,topic,paraphrase --orders all --out orders

      cl-graft compare stream.yaml --strategies grafting,naive --sweep density=5e-4,0.002 --out sweep

      cl-graft compare stream.yaml --seeds 0,1,2 --engine ray --workers 8 --out wide

      cl-graft compare --resume first
    """  # noqa: E501  a command is one line
    from cl_graft.cli.run_tables import comparison_table, data_notes, run_tables
    from cl_graft.experiments.config import load_config
    from cl_graft.experiments.resume import stored_comparison

    output = Output(quiet, as_json)
    trusted = given(trust_remote_code=trust_remote_code or None)
    options = given(
        data=data, tasks=tasks, scenario=scenario, classes_per_experience=classes_per_experience,
        model=model, family=family, pooling=pooling, precision=precision, shots=shots,
        shots_short=shots_short, max_length=max_length, max_test=max_test, on_bad_row=on_bad_row,
        strategies=strategies, seeds=seeds, orders=orders, tune=tune or None,
        bytes_per_task=bytes_per_task, preset=preset, steps=steps,
        batch_size=batch_size, lr=lr, region_lr=region_lr, density=density, localizer=localizer,
        mode=mode, device=device,
    )  # fmt: skip
    if resume is not None:
        refuse_others("--resume", config, sets, options | given(sweep=sweep))
        out = resume
        settings, started_by = stored_comparison(out, trust_remote_code=trust_remote_code)
    else:
        swept = [_as_set(text) for text in sweep or ()]
        settings = load_config(config, [*swept, *(sets or ())], options=options | trusted)
        started_by = None
    with opened_engine(
        engine, out, address=address, workers=workers, cpus=cpus_per_cell, gpus=gpus_per_cell,
        parameters=engine_set,
    ) as opened:  # fmt: skip
        comparison = watched_comparison(settings, out, output, started_by=started_by, engine=opened)
    shown = comparison.runs if settings.orders == 1 and not settings.sweep else ()
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
    from cl_graft.experiments.comparison.sweep import points_of
    from cl_graft.experiments.comparison.tuning import runs_to_choose
    from cl_graft.experiments.folders import resume_command

    each = [point.config for point in points_of(config)]
    tasks = sum(len(one.tasks) * len(one.strategies) * len(one.seeds) for one in each)
    tasks += sum(min(2, len(one.tasks)) * runs_to_choose(one) for one in each)
    if config.classes_per_experience is not None:
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


def _as_set(text: str) -> str:
    """Return what ``--sweep NAME=A,B,C`` asks for as ``--set`` would."""
    name, equals, values = text.partition("=")
    if not (name and equals and values):
        raise InputError(f"--sweep takes NAME=A,B,C, got {text!r}")
    return f"sweep.{name.strip()}=[{values}]"


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
