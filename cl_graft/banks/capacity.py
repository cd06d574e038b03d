"""How much room a bank has left: what its tasks lost, and when the next ones will lose too much.

The prediction is made of two things that the bank itself shows: how often its coordinates are
claimed, which says what share of a region the n-th task will lose, and how its tasks scored after
losing what they lost, which says what share is too much. Where one of them is missing it says
"cannot tell", and why.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cl_graft.banks.bank_of_run import bank_folder
from cl_graft.errors import InputError
from cl_graft.experiments.config.old_configs import from_flat
from cl_graft.experiments.folders import find_run_of_bank, run_folder
from cl_graft.grafts.bank import GraftBank
from cl_graft.grafts.capacity import (
    OwnedInOrders,
    claim_counts,
    drop_threshold,
    expected_lost,
    owned_in_orders,
    predicted_lost,
    task_that_loses,
)
from cl_graft.results.run_results import RESULTS, RunResult, read_result
from cl_graft.storage import load_bank

__all__ = ["Capacity", "Prediction", "TaskRoom", "capacity"]


@dataclass(frozen=True)
class TaskRoom:
    """What one entry has of its region.

    Attributes:
        position: Its place in the bank.
        task: Its task.
        claimed: Coordinates of the region that was chosen.
        owned: Those that were free, which it trained.
        overlap: Share of the region that earlier entries claim, too.
        lost: Share that they own: 0 in isolated mode, where coordinates may be shared.
        expected_lost: What the task at its place loses on average over all orders of these tasks.
        score: How well the task does, None where that is not known.
        reference: How well it does without having lost anything.
        dropped: Whether `score` is lower by more than the tolerance; None where that is unknown.
    """

    position: int
    task: str
    claimed: int
    owned: int
    overlap: float
    lost: float
    expected_lost: float
    score: float | None = None
    reference: float | None = None
    dropped: bool | None = None


@dataclass(frozen=True)
class Prediction:
    """When later tasks will lose too much, and what that rests on.

    Attributes:
        next_lost: Share that the next task is expected to lose; None if that cannot be told.
        threshold: Lost share from which on tasks dropped; None if that cannot be told.
        drops_at: Number, from 1, of the first task that is expected to lose as much; None if that
            cannot be told.
        known_to: Largest share that a task lost without dropping; None where nothing is known.
        leaves_known_at: Number of the first task that is expected to lose more than that.
        full_at: Where regions are chosen among free coordinates: number of the first task that
            would find too few, if all took as many as these did on average.
        basis: What scores are compared with.
        reason: Why something cannot be told; empty where all can.
        model: What is assumed.
    """

    next_lost: float | None
    threshold: float | None
    drops_at: int | None
    known_to: float | None
    leaves_known_at: int | None
    full_at: int | None
    basis: str
    reason: str
    model: str = (
        "later tasks choose their regions as these did, so that the n-th loses what the counts of "
        "coordinates claimed once and twice tell (Good-Turing; good for about twice the tasks "
        "there are), and drops from the lost share on from which tasks of this bank did"
    )


@dataclass(frozen=True)
class Capacity:
    """How much room a bank has.

    Attributes:
        bank: The bank's folder.
        mode: Its mode.
        coordinates: Graftable coordinates of the base.
        owned: Coordinates that any entry owns.
        tolerance: Share of the reference that a score may be lower by without having dropped.
        tasks: One an entry.
        prediction: What later tasks are in for.
        orders: What the same regions would own in other orders; None without an entry.
        refilled: Whether regions were chosen among free coordinates: others would then have been
            chosen in another order; None if the bank does not say.
    """

    bank: Path
    mode: str
    coordinates: int
    owned: int
    tolerance: float
    tasks: tuple[TaskRoom, ...]
    prediction: Prediction
    orders: OwnedInOrders | None
    refilled: bool | None


def capacity(
    folder: Path | str, *, tolerance: float = 0.02, samples: int = 200, seed: int = 0
) -> Capacity:
    """Say how much room a bank has; no model is loaded.

    Scores are those on test rows after learning the task, beside those of independent fine-tuning
    with the same seed, where a comparison that ran both lies around the bank. Elsewhere they are
    those on dev rows, beside the task's own dense run's.

    Args:
        folder: A bank, or a run that holds one.
        tolerance: A task has dropped if its score is below (1 - tolerance) of the reference.
        samples: Orders to draw where there are more than 5,040.
        seed: Draws them.

    Raises:
        InputError: If there is no bank there, or the tolerance is no share.
        BankError: If a file is damaged or foreign.
    """
    if not 0 <= tolerance < 1:
        raise InputError(f"tolerance must be in [0, 1), got {tolerance}")
    if samples < 1:
        raise InputError(f"samples must be at least 1, got {samples}")
    where = bank_folder(folder)
    bank = load_bank(where)
    regions = [entry.region for entry in bank.entries]
    filled = [region for region in regions if len(region)]
    counts = claim_counts(filled) if bank.mode == "prefix" else {}
    basis, scores = _scores(where, bank)
    expected = expected_lost(counts, len(regions)) or [0.0] * len(regions)
    tasks = tuple(
        _room(bank, place, tolerance, scores.get(place), expected[place])
        for place in range(len(bank))
    )
    settings = bank.base.metadata.get("settings")
    grafting = from_flat(settings).get("grafting", {}) if isinstance(settings, Mapping) else {}
    avoid_owned = grafting.get("avoid_owned")
    refilled = None if avoid_owned is None else bool(avoid_owned)
    return Capacity(
        bank=where,
        mode=bank.mode,
        coordinates=bank.layout.total,
        owned=len(bank.owned()),
        tolerance=tolerance,
        tasks=tasks,
        prediction=_prediction(bank, tasks, counts, basis, refilled=bool(refilled)),
        orders=owned_in_orders(filled, samples=samples, seed=seed)
        if filled and len(filled) == len(regions)
        else None,
        refilled=refilled,
    )


def _room(
    bank: GraftBank,
    place: int,
    tolerance: float,
    scored: tuple[float, float] | None,
    expected: float,
) -> TaskRoom:
    entry = bank.entries[place]
    before = bank.covered(upto=place)
    score, reference = scored or (None, None)
    return TaskRoom(
        position=place,
        task=entry.task,
        claimed=entry.size,
        owned=len(entry.owned),
        overlap=before.overlap(entry.region) or 0.0,
        lost=entry.share_owned_before,
        expected_lost=expected,
        score=score,
        reference=reference,
        dropped=None if scored is None else scored[0] < (1 - tolerance) * scored[1],
    )


def _prediction(
    bank: GraftBank,
    tasks: tuple[TaskRoom, ...],
    counts: Mapping[int, int],
    basis: str,
    *,
    refilled: bool,
) -> Prediction:
    """Say when later tasks will lose too much, or why that cannot be told."""
    count, sizes = len(tasks), [task.claimed for task in tasks if task.claimed]
    overlap = count > 1 and any(m > 1 for m in counts)
    known = [task for task in tasks if task.dropped is not None]
    threshold = drop_threshold([t.lost for t in known], [bool(t.dropped) for t in known])
    known_to = max((task.lost for task in known if not task.dropped), default=None)
    mean = sum(sizes) / len(sizes) if sizes else 0.0
    fills = refilled and bank.mode == "prefix" and mean > 0
    more = None if known_to is None else math.nextafter(known_to, 1.0)
    drops_at = (
        task_that_loses(threshold, counts, count) if overlap and threshold is not None else None
    )
    return Prediction(
        next_lost=predicted_lost(counts, count, task=count + 1) if overlap else None,
        threshold=threshold,
        drops_at=drops_at,
        known_to=known_to,
        leaves_known_at=task_that_loses(more, counts, count) if overlap and more else None,
        full_at=int(bank.layout.total // mean) + 1 if fills else None,
        basis=basis,
        reason="" if drops_at else _reason(bank, known, count, threshold, overlap=overlap),
    )


def _reason(
    bank: GraftBank,
    known: list[TaskRoom],
    count: int,
    threshold: float | None,
    *,
    overlap: bool,
) -> str:
    """Return why it cannot be told when tasks drop."""
    if bank.mode == "isolated":
        return "entries of isolated mode share coordinates: none loses any, however many follow"
    if count < 2:
        return "it takes two tasks to see how regions overlap"
    if not overlap:
        return "no two regions overlap, so nothing was lost that a later task could lose more of"
    if not known:
        return "no task has both a score and one to compare it with"
    if not any(task.dropped for task in known):
        most = max(task.lost for task in known)
        return f"no task dropped, and none lost more than {most:.1%} of its region"
    if threshold is None:
        return "tasks that lost more did not drop more often than tasks that lost less"
    return "no task is in sight that would lose as much as those that dropped"


def _scores(where: Path, bank: GraftBank) -> tuple[str, dict[int, tuple[float, float]]]:
    """Return by position what tasks score, beside what they do without having lost anything."""
    run = find_run_of_bank(where)
    found: dict[int, tuple[float, float]] = {}
    pair = _runs(run) if run is not None else None
    if pair is not None:
        ours, alone = (_learned(result) for result in pair)
        for place, entry in enumerate(bank.entries):
            if entry.task in ours and entry.task in alone:
                found[place] = ours[entry.task], alone[entry.task]
    if found:
        return "test rows, beside independent fine-tuning", found
    for place, entry in enumerate(bank.entries):
        trained, dense = (entry.metadata.get(name) for name in ("trained_dev", "dense_dev"))
        if isinstance(trained, float) and isinstance(dense, float):
            found[place] = trained, dense
    return "dev rows, beside the task's own dense run" if found else "", found


def _runs(run: Path) -> tuple[RunResult, RunResult] | None:
    """Return a run's results and those of independent fine-tuning beside it, if there are both."""
    if not (run / RESULTS).is_file():
        return None
    ours = read_result(run)
    other = run_folder(run.parent.parent, "independent", ours.seed)
    return (ours, read_result(other)) if (other / RESULTS).is_file() else None


def _learned(result: RunResult) -> dict[str, float]:
    """Return each task's score right after it was learned."""
    rows = zip(result.tasks, enumerate(result.R), strict=False)
    return {task: value for task, (i, row) in rows if (value := row[i]) is not None}
