"""`demo` and `run`: learning a stream of tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cl_graft.cli.compare import failures_of, json_content, watched_comparison
from cl_graft.cli.options import (
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

__all__ = ["demo_command", "run_command"]


@with_settings()
def demo_command(
    chosen: Chosen,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Where to write results and the bank.")
    ] = Path("cl-graft-demo"),
    sets: Sets = None,
    quiet: Quiet = False,
    as_json: As_json = False,
) -> None:
    """Watch a small pretrained encoder learn built-in tasks and forget nothing.

    Four ways to learn the same stream: [b]grafting[/b]; [b]naive[/b] fine-tuning, one task after
    the other; [b]lora[/b], an adapter of low rank for every task; and [b]independent[/b], a whole
    model for every task. Then the bank that grafting
    left is verified. A few minutes on two cores, without a GPU or a model hub.

    [b]Example[/b]: cl-graft demo --out first
    """
    from cl_graft.banks.verify import verify
    from cl_graft.cli.run_tables import comparison_table, run_tables
    from cl_graft.experiments.config import load_config
    from cl_graft.experiments.config.presets import DEMO
    from cl_graft.experiments.run import run_folder

    output = Output(quiet, as_json)
    config = load_config(
        None, sets or (), options=chosen.values, origins=chosen.options, under=DEMO
    )
    comparison = watched_comparison(config, out, output)
    seeds = [cell.seed for cell in comparison.runs if cell.strategy == "grafting"]
    reports = []
    with apart(), meter(output) as progress:
        for seed in seeds:
            folder = run_folder(out, "grafting", seed)
            reports.append(verify(folder, progress=progress.phase))
    ok = bool(reports) and all(report.ok for report in reports)
    tables = [made for cell in comparison.runs for made in run_tables(cell)]
    said = "answers every task" if ok else "DOES NOT answer every task"
    output.result(
        {**json_content(comparison), "verified": ok},
        *tables,
        comparison_table(comparison.runs),
        f"cl-graft verify: the bank {said} with the bits it was learned with.",
        *failures_of(comparison),
        f"Results: {out / 'summary.md'}; curves: tensorboard --logdir {out}",
    )
    if comparison.failed or not ok:
        raise typer.Exit(1)


@with_settings()
def run_command(
    chosen: Chosen,
    config: Annotated[
        Path | None, typer.Argument(metavar="CONFIG.yaml", help="The settings.")
    ] = None,
    strategy: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Default: the first in the config.", show_default=False),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Default: the first in the config.", show_default=False)
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where to write.")] = Path("runs"),
    resume: Resume = None,
    sets: Sets = None,
    quiet: Quiet = False,
    as_json: As_json = False,
) -> None:
    """Learn a stream once: one strategy, one seed, into OUT/STRATEGY/seedN.

    A run of the same config that was stopped or killed goes on; one that is finished is shown.

    [b]Examples[/b]

      cl-graft run stream.yaml --out first

      cl-graft run stream.yaml --strategy naive --steps 200 --set fine_tuning.weight_decay=0

      cl-graft run --resume first

    [b]A config[/b]

      stream: {tasks: 'sentiment,topic,paraphrase', shots: 256}

      grafting: {density: 0.001}
    """
    from cl_graft.cli.run_tables import comparison_table, data_notes, run_tables
    from cl_graft.experiments.config import load_config
    from cl_graft.experiments.folders import resume_command
    from cl_graft.experiments.resume import find_run, stored_config
    from cl_graft.experiments.run import run, run_folder

    output = Output(quiet, as_json)
    chosen = chosen.also("comparison.strategies", strategy, "--strategy")
    chosen = chosen.also("comparison.seeds", seed, "--seed")
    if resume is not None:
        trusted, others = chosen.trust()
        refuse_others("--resume", config, sets, others.values)
        where = find_run(resume)
        out = where.parent.parent
        settings = stored_config(where, trust_remote_code=trusted)
    elif config is not None or chosen.values:
        settings = load_config(config, sets or (), options=chosen.values, origins=chosen.options)
        where = run_folder(out, settings.comparison.strategies[0], settings.comparison.seeds[0])
    else:
        raise InputError("give a config to run, --tasks, or --resume with the folder of a run")
    with (
        stoppable(resume_command("run", where, settings), where) as stop,
        apart(),
        meter(output, tasks=len(settings.stream.tasks)) as progress,
    ):
        result = run(
            settings,
            strategy=settings.comparison.strategies[0],
            seed=settings.comparison.seeds[0],
            out=out,
            progress=progress.step,
            stop=stop,
        )
    output.result(
        result,
        *run_tables(result),
        comparison_table([result]),
        *data_notes([result]),
        f"Results: {where}",
    )
