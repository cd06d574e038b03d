"""The command `run`: one strategy on a stream, with one seed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cl_graft.cli import options
from cl_graft.cli.options import argument, option
from cl_graft.cli.output import Output, redirect_prints
from cl_graft.cli.progress import show_progress
from cl_graft.errors import InputError
from cl_graft.runtime.signals import stoppable


@options.with_settings()
def run_command(
    chosen: options.Chosen,
    config: Annotated[
        Path | None, argument("CONFIG.yaml", "Config file; options override it.")
    ] = None,
    strategy: Annotated[
        str | None, option("NAME", "Strategy to run. Default: the first in the config.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the run. Default: the first in the config.")
    ] = None,
    out: options.Out = None,
    resume: options.Resume = None,
    sets: options.Sets = None,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Learn a stream once: one strategy, one seed, into OUT/STRATEGY/seedN.

    If a run of the same config was stopped or killed, it continues; if it is finished, its results
    are shown.

    [b]Examples[/b]

      cl-graft run stream.yaml --out first

      cl-graft run stream.yaml --strategy naive --steps 200 --set fine_tuning.weight_decay=0

      cl-graft run --resume first

    [b]A config[/b]

      stream: {tasks: 'scope,topic,entailment', shots: 256}

      grafting: {density: 0.001}
    """
    from cl_graft.lab.commands.run_tables import list_data_notes, show_scores, show_summary
    from cl_graft.lab.experiments.folders import find_run, resume_command, stored_config
    from cl_graft.lab.experiments.run import run, run_folder
    from cl_graft.lab.results.comparison import summarize
    from cl_graft.settings import load_config

    output = Output(quiet, as_json)
    chosen = chosen.also("comparison.strategies", strategy, "--strategy")
    chosen = chosen.also("comparison.seeds", seed, "--seed")
    if resume is not None:
        trusted, others = chosen.trust()
        options.refuse_others(config, sets, others.values or out)
        where = find_run(resume)
        out = where.parent.parent
        settings = stored_config(where, trust_remote_code=trusted)
    elif config is not None or chosen.values:
        out = out or options.RUNS
        settings = load_config(config, sets or (), options=chosen.values, origins=chosen.options)
        where = run_folder(out, settings.comparison.strategies[0], settings.comparison.seeds[0])
    else:
        raise InputError(
            "give a config to run, --stream, --tasks, or --resume with the folder of a run"
        )
    with (
        stoppable(resume_command("run", where, settings), where) as stop,
        redirect_prints(),
        show_progress(output, tasks=len(settings.stream.tasks)) as progress,
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
        show_scores(result),
        *show_summary(summarize([result], config=result.config)),
        *list_data_notes([result]),
        f"Results: {where}",
    )
