"""The command `capacity`: what the tasks of a bank own, and when later ones drop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cl_graft.cli.options import AsJson, Bank, Quiet
from cl_graft.cli.output import Output, format_score, make_table

if TYPE_CHECKING:
    from cl_graft.banks.capacity import Capacity

__all__ = ["capacity_command"]


def capacity_command(
    bank: Bank,
    tolerance: Annotated[
        float,
        typer.Option(help="A score has dropped if it is below (1 - tolerance) of its reference."),
    ] = 0.02,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Show how many more tasks a bank can take. The model is not loaded.

    The table has the size of each task's region, the coordinates of it that the task owns, and the
    share that earlier tasks own. Below it, the command says at which task accuracy is predicted to
    drop, or why that is unknown. Scores are compared with those of independent fine-tuning if the
    bank is in a comparison that ran it, otherwise with those of the task's own dense run.

    [b]Example[/b]: cl-graft capacity first/grafting/seed0/bank
    """
    from cl_graft.banks.capacity import measure_capacity

    found = measure_capacity(bank, tolerance=tolerance)
    rows = [
        (
            task.position,
            task.task,
            f"{task.region_size:,}",
            f"{task.owned:,}",
            f"{task.overlap:.1%}",
            f"{task.owned_before:.1%}",
            f"{task.average_owned_before:.1%}",
            format_score(task.score),
            format_score(task.reference),
        )
        for task in found.tasks
    ]
    columns = (
        "entry", "task", "region", "owned", "in earlier regions", "owned before",
        "owned before on average", "score", "reference",
    )  # fmt: skip
    output = Output(quiet, as_json)
    output.result(found, make_table(str(found.bank), columns, rows), *_describe_prediction(found))


def _describe_prediction(found: Capacity) -> list[str]:
    """Say in sentences what is predicted for later tasks."""
    from cl_graft.banks.capacity import ASSUMPTION

    predicted, count = found.prediction, len(found.tasks)
    used = found.owned / found.coordinates
    lines = [f"{found.owned:,} of {found.coordinates:,} coordinates are owned ({used:.2%})."]
    if predicted.next_owned_before is not None:
        lines.append(
            f"Of the region of task {count + 1}, others are expected to own "
            f"{predicted.next_owned_before:.1%}."
        )
    if predicted.drops_at is not None:
        far = ", which is far beyond what can be known" if predicted.drops_at > 2 * count else ""
        lines.append(
            f"Accuracy is predicted to drop at task {predicted.drops_at}{far}: tasks of whose "
            f"regions others own more than {predicted.threshold:.1%} dropped by more than "
            f"{found.tolerance:.0%} ({predicted.basis})."
        )
        lines.append(f"Assumption: {ASSUMPTION}.")
    else:
        lines.append(f"The task at which accuracy drops cannot be told: {predicted.reason}.")
        if predicted.beyond_known_at is not None:
            lines.append(f"Task {predicted.beyond_known_at} is the first expected to own less.")
    if predicted.full_at is not None:
        lines.append(
            "Regions are chosen among free coordinates (avoid_owned); task "
            f"{predicted.full_at:,} is the first expected to find too few."
        )
    return lines
