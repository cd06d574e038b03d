"""The command `demo`: a comparison on built-in tasks, and a check of its bank."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from cl_graft.cli.options import AsJson, Chosen, Quiet, Sets, option, with_settings
from cl_graft.cli.output import Output, redirect_prints
from cl_graft.cli.progress import show_progress
from cl_graft.errors import InputError
from cl_graft.lab.commands.compare import name_files, run_comparison


@with_settings(without=("stream",))
def demo_command(
    chosen: Chosen,
    out: Annotated[Path, option("DIR", "Where to write results and the bank.")] = Path(
        "cl-graft-demo"
    ),
    sets: Sets = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Watch a small pretrained encoder learn built-in tasks and forget nothing.

    Four ways to learn the same stream: [b]grafting[/b]; [b]naive[/b] fine-tuning, one task after
    the other; [b]lora[/b], an adapter of low rank for every task; and [b]independent[/b], a whole
    model for every task. Then the bank that grafting made is verified. The demo takes a few minutes
    on two cores and needs neither a GPU nor a model hub.

    [b]Example[/b]: cl-graft demo --out first
    """
    from cl_graft.banks.verify import verify
    from cl_graft.lab.commands import run_tables
    from cl_graft.lab.experiments.run import run_folder
    from cl_graft.settings import load_config
    from cl_graft.settings.presets import DEMO

    output = Output(quiet, as_json)
    config = load_config(
        None, sets or (), options=chosen.values, origins=chosen.options, under=DEMO
    )
    refuse_missing_packages(config.comparison.strategies)
    comparison = run_comparison(config, out, output)
    seeds = [run.seed for run in comparison.runs if run.strategy == "grafting"]
    reports = []
    with redirect_prints(), show_progress(output) as progress:
        for seed in seeds:
            folder = run_folder(out, "grafting", seed)
            reports.append(verify(folder, progress=progress.phase))
    ok = bool(reports) and all(report.ok for report in reports)
    said = "answers every task" if ok else "DOES NOT answer every task"
    output.result(
        {**run_tables.to_json_content(comparison), "verified": ok},
        *(run_tables.show_scores(run) for run in comparison.runs),
        *run_tables.show_summary(comparison.summary),
        f"cl-graft verify: the bank {said} with the bits it was learned with.",
        *run_tables.list_failures(comparison),
        *name_files(comparison),
    )
    if comparison.failed or not ok:
        raise typer.Exit(1)


def refuse_missing_packages(strategies: Sequence[str]) -> None:
    """Raise an InputError that names the extra of the demo if a strategy lacks a package."""
    from cl_graft.strategies.registry import find_strategy

    reasons = {name: find_strategy(name).unavailable for name in strategies}
    if missing := [f"strategy {name!r}: {reason}" for name, reason in reasons.items() if reason]:
        raise InputError(
            f"{'; '.join(missing)}; all that the demo needs: pip install 'cl-graft[demo]'"
        )
