"""A table or a figure of the grafting paper or of the SAM paper.

    python benchmarks/paper_experiment.py                                    # lists them
    python benchmarks/paper_experiment.py table1 --scale smoke --out first
    python benchmarks/paper_experiment.py fig2 --data DATA --set stream.tasks=sst2_sent --seeds 0,1

Every cell, a sample of the data, is a file: what was interrupted goes on with the next one, and a
cell of other settings is refused. JSON, table and picture are made of all cells, in OUT/NAME; dense
runs are shared between experiments through OUT/cache.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from papers import EXPERIMENTS, run_experiment
from papers.measurements import table_cells

from cl_graft.cli.app import main
from cl_graft.cli.options import AsJson, Data, Quiet, Sets
from cl_graft.cli.output import Output, make_table, redirect_prints
from cl_graft.errors import InputError
from cl_graft.settings.parts import seeds_from

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def experiment(
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
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="Checkpoint: a name of the hub, or a folder; default: the scale's.",
            show_default=False,
        ),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(metavar="0-2,5", help="Data seeds, one a cell.", show_default=False),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where to write.")] = Path("papers"),
    sets: Sets = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Run an experiment of the grafting paper or the SAM paper, into OUT/NAME."""
    output = Output(quiet, as_json)
    if name is None:
        rows = [(row.name, row.title, row.source) for row in EXPERIMENTS.values()]
        output.result(
            [{"name": name, "title": title, "source": source} for name, title, source in rows],
            make_table("Experiments", ("name", "shows", "source"), rows),
        )
        return
    try:
        chosen = seeds_from(seeds) if seeds is not None else None
    except ValueError as error:
        raise InputError(f"--seeds: {error}") from None
    with redirect_prints():
        outcome = run_experiment(
            name,
            out=out,
            scale=scale,
            data=data,
            seeds=chosen,
            sets=[*([f"model.name={json.dumps(model)}"] if model else []), *(sets or ())],
            on_cell=lambda done, cells: output.note(f"{name}: cell {done} of {cells}"),
        )
    output.result(
        {"experiment": name, "rows": outcome.rows},
        make_table(
            outcome.experiment.title, *table_cells(outcome.rows, axis=outcome.experiment.axis)
        ),
        f"JSON, table and picture: {outcome.folder}",
    )


if __name__ == "__main__":
    main(app, name="paper_experiment.py")
