"""`demo` and `run`: learning a stream of tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cl_graft.cli.compare import failures_of, json_content, watched_comparison
from cl_graft.cli.options import As_json, On_bad_row, Quiet, Resume, Sets, Trusted, refuse_others
from cl_graft.cli.output import Output, apart, given
from cl_graft.cli.progress import meter
from cl_graft.errors import InputError
from cl_graft.runtime.signals import stoppable

__all__ = ["demo_command", "run_command"]


def demo_command(
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
    from cl_graft.experiments.demo import demo_config
    from cl_graft.experiments.run import run_folder

    output = Output(quiet, as_json)
    defaults = demo_config().model_dump(mode="json", exclude_unset=True)
    config = load_config(None, sets or (), options=defaults)
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


def run_command(
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
    on_bad_row: On_bad_row = None,
    resume: Resume = None,
    trust_remote_code: Trusted = False,
    sets: Sets = None,
    quiet: Quiet = False,
    as_json: As_json = False,
) -> None:
    """Learn a stream once: one strategy, one seed, into OUT/STRATEGY/seedN.

    A run of the same config that was stopped or killed goes on; one that is finished is shown.

    [b]Examples[/b]

      cl-graft run stream.yaml --out first

      cl-graft run stream.yaml --strategy naive --set steps=200 --set density=0.001

      cl-graft run --resume first

    [b]A config[/b]

      tasks: [sentiment, topic, paraphrase]

      shots: 256
    """
    from cl_graft.cli.run_tables import comparison_table, data_notes, run_tables
    from cl_graft.experiments.config import load_config
    from cl_graft.experiments.folders import resume_command
    from cl_graft.experiments.resume import find_run, stored_config
    from cl_graft.experiments.run import run, run_folder

    output = Output(quiet, as_json)
    chosen = given(strategies=strategy, seeds=seed, on_bad_row=on_bad_row)
    trusted = given(trust_remote_code=trust_remote_code or None)
    if resume is not None:
        refuse_others("--resume", config, sets, chosen)
        where = find_run(resume)
        out = where.parent.parent
        settings = stored_config(where, trust_remote_code=trust_remote_code)
    elif config is not None:
        settings = load_config(config, sets or (), options=chosen | trusted)
        where = run_folder(out, settings.strategies[0], settings.seeds[0])
    else:
        raise InputError("give a config to run, or --resume with the folder of a run")
    with (
        stoppable(resume_command("run", where, settings), where) as stop,
        apart(),
        meter(output, tasks=len(settings.tasks)) as progress,
    ):
        result = run(
            settings,
            strategy=settings.strategies[0],
            seed=settings.seeds[0],
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
