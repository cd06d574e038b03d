"""The command `localize`: the region of one task."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cl_graft.cli.options import AsJson, Chosen, Quiet, Sets, argument, option, with_settings
from cl_graft.cli.output import Output, make_table, redirect_prints

_LOCALIZER = {"grafting": {"localizer": "learned_mask"}}
"""For a region that keeps the values of a whole dense run."""


@with_settings(without=("tasks", "scenario", "classes_per_experience", "mode", "mask_candidates"))
def localize_command(
    chosen: Chosen,
    task: Annotated[str, argument("TASK", "Name of a task, as in --tasks of run.")],
    out: Annotated[Path, option("DIR", "Where to write.")] = Path("localized"),
    sets: Sets = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Fine-tune on one task and find the region that carries what was learned.

    OUT holds the graft as a file that [b]load_graft[/b] reads, all numbers, and pictures: the
    score against the density, and where the region lies. The dense run is cached there, so that
    another density or localizer does not train again.

    [b]Examples[/b]

      cl-graft localize scope

      cl-graft localize reviews --data mydata --density 0.001 --out reviews-region

      cl-graft localize reviews --data mydata --localizer movement --shots 64

    The localizer is the learned mask where none is named.
    """
    from cl_graft.lab.experiments.localized_task import localize_task
    from cl_graft.settings import load_config

    output = Output(quiet, as_json)
    chosen = chosen.also("stream.tasks", [task], "TASK")
    with redirect_prints():
        config = load_config(
            None, sets or (), options=chosen.values, origins=chosen.options, under=_LOCALIZER
        )
        result = localize_task(config, out=out)
    rows = [(method, f"{score:.3f}") for method, score in result.scores.items()]
    output.result(
        result,
        f"{result.task}: {result.coordinates:,} coordinates, {result.density:.3%} of the graftable",
        make_table("On the test rows, as fractions", ("method", "score"), rows),
        f"Graft, numbers and pictures: {result.folder}",
    )
