"""`experiment`: a table or a figure of the papers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cl_graft.cli.options import As_json, Data, Model, Quiet, Sets
from cl_graft.cli.output import Output, apart, given, table

__all__ = ["experiment_command"]


def experiment_command(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Which; without a name, all are listed.")
    ] = None,
    scale: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="smoke: seconds, on built-in tasks; cpu: two cores; paper: the paper's settings.",
        ),
    ] = "cpu",
    data: Data = None,
    model: Model = None,
    seeds: Annotated[
        str | None,
        typer.Option(metavar="N,N", help="Data seeds, one a cell.", show_default=False),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where to write.")] = Path("laboratory"),
    sets: Sets = None,
    quiet: Quiet = False,
    as_json: As_json = False,
) -> None:
    """Run an experiment of the grafting paper or the SAM paper, into OUT/NAME.

    Every cell, a sample of the data, is a file: what was interrupted goes on with the next one, and
    a cell of other settings is refused. JSON, table and picture are made of all cells; dense runs
    are shared between experiments through OUT/cache.

    [b]Examples[/b]

      cl-graft experiment

      cl-graft experiment table1 --scale smoke

      cl-graft experiment fig2 --data mydata --set tasks=sst2_sent --seeds 0,1,2
    """
    from cl_graft.errors import InputError
    from cl_graft.laboratory import EXPERIMENTS, run_experiment

    output = Output(quiet, as_json)
    if name is None:
        rows = [(row.name, row.title, row.source) for row in EXPERIMENTS.values()]
        output.result(
            [{"name": name, "title": title, "source": source} for name, title, source in rows],
            table("Experiments", ("name", "shows", "source"), rows),
        )
        return
    try:
        chosen = [int(part) for part in seeds.split(",")] if seeds is not None else None
    except ValueError:
        raise InputError(f"--seeds must be numbers such as 0,1,2, got {seeds!r}") from None
    own = [f"{key}={value}" for key, value in given(model=model).items()]
    with apart():
        outcome = run_experiment(
            name,
            out=out,
            scale=scale,
            data=data,
            seeds=chosen,
            sets=[*own, *(sets or ())],
            on_cell=lambda done, cells: output.note(f"{name}: cell {done} of {cells}"),
        )
    output.result(
        {"experiment": name, "rows": outcome.rows},
        outcome.table,
        f"JSON, table and picture: {outcome.folder}",
    )
