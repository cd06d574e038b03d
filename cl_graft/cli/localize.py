"""`localize`: the region of one task."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cl_graft.cli.options import As_json, Data, Model, Quiet, Sets
from cl_graft.cli.output import Output, apart, given, table

__all__ = ["localize_command"]


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
    from cl_graft.experiments.localized_task import localize_task

    output = Output(quiet, as_json)
    chosen = given(data=data, model=model, density=density, localizer=localizer)
    with apart():
        config = load_config(None, sets or (), options={"tasks": [task], **chosen})
        found = localize_task(config, out=out)
    measures = next(iter(found.scores.values()))
    rows = [
        (method, *(f"{own[measure]:.3f}" for measure in measures))
        for method, own in found.scores.items()
    ]
    output.result(
        {
            "task": found.task,
            "coordinates": found.coordinates,
            "density": found.density,
            "scores": found.scores,
        },
        f"{found.task}: {found.coordinates:,} coordinates, {found.density:.3%} of the graftable",
        table("On the test rows, as fractions", ("method", *measures), rows),
        f"Graft, numbers and pictures: {found.folder}",
    )
