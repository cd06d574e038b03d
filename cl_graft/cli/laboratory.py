"""`experiment`: a table or a figure of the papers; `localize`: the region of one task."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from cl_graft.cli.options import As_json, Data, Model, Quiet, Sets
from cl_graft.cli.output import Output, apart, given, table

__all__ = ["experiment_command", "localize_command"]


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
        typer.Option(metavar="0-2,5", help="Data seeds, one a cell.", show_default=False),
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
    from cl_graft.experiments.config import seeds_from
    from cl_graft.laboratory import EXPERIMENTS, run_experiment
    from cl_graft.laboratory.readings import table_cells

    output = Output(quiet, as_json)
    if name is None:
        rows = [(row.name, row.title, row.source) for row in EXPERIMENTS.values()]
        output.result(
            [{"name": name, "title": title, "source": source} for name, title, source in rows],
            table("Experiments", ("name", "shows", "source"), rows),
        )
        return
    try:
        chosen = seeds_from(seeds) if seeds is not None else None
    except ValueError as error:
        raise InputError(f"--seeds: {error}") from None
    with apart():
        outcome = run_experiment(
            name,
            out=out,
            scale=scale,
            data=data,
            seeds=chosen,
            sets=[*([f"model={json.dumps(model)}"] if model else []), *(sets or ())],
            on_cell=lambda done, cells: output.note(f"{name}: cell {done} of {cells}"),
        )
    output.result(
        {"experiment": name, "rows": outcome.rows},
        table(outcome.experiment.title, *table_cells(outcome.rows, axis=outcome.experiment.axis)),
        f"JSON, table and picture: {outcome.folder}",
    )


def localize_command(
    task: Annotated[str, typer.Argument(metavar="TASK", help="As in --tasks of run.")],
    data: Data = None,
    model: Model = None,
    density: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE",
            help="Share of the coordinates in the region, in (0, 1], or auto.",
            show_default=False,
        ),
    ] = None,
    localizer: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="How the region is found.", show_default=False),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where to write.")] = Path("localized"),
    sets: Sets = None,
    quiet: Quiet = False,
    as_json: As_json = False,
) -> None:
    """Fine-tune on one task and find the region that carries what was learned.

    Into OUT go the graft, a file that [b]load_graft[/b] reads, all numbers, and pictures: the
    score against the density, where the region lies, and calibration. The dense run is kept there,
    so another density or localizer does not train again.

    [b]Examples[/b]

      cl-graft localize sentiment

      cl-graft localize reviews --data mydata --density 0.001 --out reviews-region

      cl-graft localize reviews --data mydata --localizer movement --set shots=64
    """
    from cl_graft.experiments.config import load_config
    from cl_graft.laboratory.localizing import localize_task
    from cl_graft.laboratory.readings import table_cells

    output = Output(quiet, as_json)
    chosen = given(data=data, model=model, density=density, localizer=localizer)
    with apart():
        config = load_config(None, sets or (), options={"tasks": [task], **chosen})
        found = localize_task(config, out=out)
    output.result(
        {
            "task": found.task,
            "coordinates": found.coordinates,
            "density": found.density,
            "rows": found.rows,
        },
        f"{found.task}: {found.coordinates:,} coordinates, {found.density:.3%} of the graftable",
        table("On the test rows, as fractions", *table_cells(found.rows)),
        f"Graft, numbers and pictures: {found.folder}",
    )
