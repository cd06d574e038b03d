"""`capacity`: how much room a bank has left."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cl_graft.cli.options import As_json, Quiet
from cl_graft.cli.output import Output, table

if TYPE_CHECKING:
    from cl_graft.banks.capacity import Capacity

__all__ = ["capacity_command"]


def capacity_command(
    bank: Annotated[Path, typer.Argument(metavar="BANK", help="A bank, or a run of grafting.")],
    tolerance: Annotated[
        float,
        typer.Option(help="Share of its reference that a score may be lower by without a drop."),
    ] = 0.02,
    samples: Annotated[
        int, typer.Option(help="Orders to draw where there are more than 5,040.")
    ] = 200,
    seed: Annotated[int, typer.Option(help="Draws them.")] = 0,
    quiet: Quiet = False,
    as_json: As_json = False,
) -> None:
    """Show how much room a bank has left. The model is not loaded.

    What each task claimed, what earlier tasks had taken of it, and what it would own had the tasks
    come in another order; at which task accuracy is predicted to drop, what that rests on, or why
    it cannot be told. Scores are compared with independent fine-tuning where a comparison that ran
    it lies around the bank, else with the task's own dense run.

    [b]Example[/b]: cl-graft capacity first/grafting/seed0/bank
    """
    from cl_graft.banks.capacity import capacity

    found = capacity(bank, tolerance=tolerance, samples=samples, seed=seed)
    output = Output(quiet, as_json)
    output.result(found, _tasks(found), *_predicted(found), *_ordered(found))


def _tasks(found: Capacity) -> object:
    orders = found.orders
    rows = [
        (
            task.position,
            task.task,
            f"{task.claimed:,}",
            f"{task.owned:,}",
            f"{task.overlap:.1%}",
            f"{task.lost:.1%}",
            f"{task.expected_lost:.1%}",
            "–" if orders is None else f"{orders.least[task.position]:.1%}",
            "–" if orders is None else f"{orders.mean[task.position]:.1%}",
            "–" if task.score is None else f"{task.score:.3f}",
            "–" if task.reference is None else f"{task.reference:.3f}",
        )
        for task in found.tasks
    ]
    columns = (
        "entry", "task", "claimed", "owned", "claimed before", "lost", "lost on average",
        "owned if last", "owned on average", "score", "reference",
    )  # fmt: skip
    return table(str(found.bank), columns, rows)


def _predicted(found: Capacity) -> list[str]:
    """Say what later tasks are in for."""
    told, count = found.prediction, len(found.tasks)
    used = found.owned / found.coordinates
    lines = [f"{found.owned:,} of {found.coordinates:,} coordinates are owned ({used:.2%})."]
    if told.next_lost is not None:
        lines.append(f"Task {count + 1} is expected to lose {told.next_lost:.1%} of its region.")
    if told.drops_at is not None:
        far = ", far beyond what can be known" if told.drops_at > 2 * count else ""
        lines.append(
            f"Accuracy is predicted to drop at task {told.drops_at}{far}: tasks that lost more "
            f"than {told.threshold:.1%} did, by more than {found.tolerance:.0%} ({told.basis})."
        )
        lines.append(f"Assumed: {told.model}.")
    else:
        lines.append(f"At which task accuracy drops: cannot tell; {told.reason}.")
        if told.leaves_known_at is not None:
            lines.append(f"Task {told.leaves_known_at} is the first expected to lose more.")
    if told.full_at is not None:
        lines.append(
            "Regions are chosen among free coordinates (avoid_owned), of which task "
            f"{told.full_at:,} would be the first to find too few."
        )
    return lines


def _ordered(found: Capacity) -> list[str]:
    """Say what other orders would give."""
    orders = found.orders
    if orders is None or len(found.tasks) < 2 or found.mode == "isolated":
        return []
    names = [task.task for task in found.tasks]
    drawn = f"{orders.orders:,} drawn by seed {orders.seed}"
    which = f"all {orders.orders:,}" if orders.exact else drawn
    lines = [
        f"In other orders ({which}) the task that owns least would own "
        f"{orders.worst_off_worst:.1%} to {orders.worst_off_best:.1%} of its region, here "
        f"{orders.worst_off:.1%}."
    ]
    if orders.worst_off_best > orders.worst_off and len(names) <= 10:
        lines.append(f"Best so: {', '.join(names[place] for place in orders.best)}.")
    if found.refilled:
        lines.append(
            "That is for the regions as they are; they were chosen among free coordinates "
            "(avoid_owned), and in another order others would have been."
        )
    return lines
