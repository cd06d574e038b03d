"""The capacity of a bank: what its tasks do not own, and when later tasks are predicted to drop.

The prediction needs two things that the bank itself shows: how many coordinates its regions share,
which says how much of a later region others will own; and the scores of tasks of whose regions
others own some, which say how much is too much. Where one is missing, the result says why.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cl_graft.banks.bank_of_run import find_bank_folder
from cl_graft.errors import InputError
from cl_graft.experiments.bank_metadata import stored_settings
from cl_graft.experiments.folders import find_run_of_bank, run_folder
from cl_graft.grafts.bank import GraftBank
from cl_graft.grafts.shared_coordinates import (
    average_owned_before,
    count_shared,
    find_drop_threshold,
    find_first_task,
    predict_owned_before,
)
from cl_graft.results.run_results import RESULTS, RunResult, read_result
from cl_graft.storage import load_bank

__all__ = ["ASSUMPTION", "Capacity", "Prediction", "TaskCapacity", "measure_capacity"]

ASSUMPTION = (
    "later tasks choose their regions as these did, so the counts of coordinates in one and in two "
    "regions tell how much others will own (Good-Turing; good for about twice the tasks there "
    "are), and they drop at the shares at which tasks of this bank did"
)


@dataclass(frozen=True)
class TaskCapacity:
    """Share of its region that one entry owns, and its score.

    Attributes:
        position: Place in the bank.
        task: Name of the task.
        region_size: Coordinates of the region that was chosen.
        owned: Those that were free, which the entry trained.
        overlap: Share of the region, in [0, 1], that is in regions of earlier entries.
        owned_before: Share that the entries that it builds on own; 0 in isolated mode, where
            coordinates may be shared.
        average_owned_before: Mean of that share at this place over all orders of the tasks.
        score: Score of the task; None where it is not known.
        reference: Score of the task where it owns its whole region.
        dropped: Whether `score` is lower by more than the tolerance; None where that is unknown.
    """

    position: int
    task: str
    region_size: int
    owned: int
    overlap: float
    owned_before: float
    average_owned_before: float
    score: float | None = None
    reference: float | None = None
    dropped: bool | None = None


@dataclass(frozen=True)
class Prediction:
    """Prediction of when later tasks drop.

    Attributes:
        next_owned_before: Share of the next task's region that others will own; None if unknown.
        threshold: Share from which on tasks dropped; None if unknown.
        drops_at: Number, from 1, of the first task at which others reach that share; None if
            unknown.
        beyond_known_at: Number of the first task at which others own more than of any task that
            did not drop; None if unknown.
        full_at: Number of the first task that finds too few free coordinates, if all take as many
            as these did on average; None where regions may hold owned coordinates.
        basis: Kind of scores that were compared.
        reason: Why `drops_at` is unknown; empty where it is known.
    """

    next_owned_before: float | None
    threshold: float | None
    drops_at: int | None
    beyond_known_at: int | None
    full_at: int | None
    basis: str
    reason: str


@dataclass(frozen=True)
class Capacity:
    """Capacity of a bank.

    Attributes:
        bank: Folder of the bank.
        mode: ``"prefix"`` or ``"isolated"``.
        coordinates: Graftable coordinates of the base.
        owned: Coordinates that any entry owns.
        tolerance: Share of the reference that a score may be lower by without having dropped.
        tasks: One an entry.
        prediction: Prediction for later tasks.
    """

    bank: Path
    mode: str
    coordinates: int
    owned: int
    tolerance: float
    tasks: tuple[TaskCapacity, ...]
    prediction: Prediction


def measure_capacity(folder: Path | str, *, tolerance: float = 0.02) -> Capacity:
    """Measure the capacity of a bank; no model is loaded.

    Scores are those on test rows after learning the task, beside those of independent fine-tuning
    with the same seed, where a comparison that ran both lies around the bank. Elsewhere they are
    those on dev rows, beside the task's own dense run's.

    Args:
        folder: A bank, or a run that holds one.
        tolerance: A task has dropped if its score is below (1 - tolerance) of the reference.

    Raises:
        InputError: If there is no bank there, or the tolerance is out of range.
        BankError: If a file is damaged or foreign.
    """
    if not 0 <= tolerance < 1:
        raise InputError(f"tolerance must be in [0, 1), got {tolerance}")
    where = find_bank_folder(folder)
    bank = load_bank(where)
    shared = count_shared([entry.region for entry in bank.entries])
    shared = shared if bank.mode == "prefix" and bank.builds_by_mode else {}
    basis, scores = _read_scores(where, bank)
    average = average_owned_before(shared, len(bank)) or [0.0] * len(bank)
    tasks = tuple(
        _measure_task(bank, place, tolerance, scores.get(place), average[place])
        for place in range(len(bank))
    )
    return Capacity(
        bank=where,
        mode=bank.mode,
        coordinates=bank.layout.total,
        owned=len(bank.owned()),
        tolerance=tolerance,
        tasks=tasks,
        prediction=_predict(bank, tasks, shared, basis),
    )


def _measure_task(
    bank: GraftBank,
    place: int,
    tolerance: float,
    scores: tuple[float, float] | None,
    average: float,
) -> TaskCapacity:
    entry = bank.entries[place]
    score, reference = scores or (None, None)
    return TaskCapacity(
        position=place,
        task=entry.task,
        region_size=entry.size,
        owned=len(entry.owned),
        overlap=bank.covered(upto=place).overlap(entry.region) or 0.0,
        owned_before=entry.share_owned_before,
        average_owned_before=average,
        score=score,
        reference=reference,
        dropped=None if scores is None else scores[0] < (1 - tolerance) * scores[1],
    )


def _predict(
    bank: GraftBank, tasks: tuple[TaskCapacity, ...], shared: Mapping[int, int], basis: str
) -> Prediction:
    """Predict when later tasks drop, or say why that is unknown."""
    count, sizes = len(tasks), [task.region_size for task in tasks if task.region_size]
    overlap = count > 1 and any(m > 1 for m in shared)
    known = [task for task in tasks if task.dropped is not None]
    threshold = find_drop_threshold(
        [task.owned_before for task in known], [bool(task.dropped) for task in known]
    )
    known_to = max((task.owned_before for task in known if not task.dropped), default=1.0)
    drops_at = beyond = None
    if overlap and threshold is not None:
        drops_at = find_first_task(threshold, shared, count)
    if overlap and known_to < 1:
        beyond = find_first_task(math.nextafter(known_to, 1.0), shared, count)
    avoids_owned = stored_settings(bank.base).get("grafting", {}).get("avoid_owned")
    fills = bank.mode == "prefix" and sizes and avoids_owned and bank.builds_by_mode
    return Prediction(
        next_owned_before=predict_owned_before(shared, count, task=count + 1) if overlap else None,
        threshold=threshold,
        drops_at=drops_at,
        beyond_known_at=beyond,
        full_at=int(bank.layout.total * len(sizes) // sum(sizes)) + 1 if fills else None,
        basis=basis,
        reason="" if drops_at else _explain_unknown(bank, known, threshold, overlap=overlap),
    )


def _explain_unknown(
    bank: GraftBank, known: list[TaskCapacity], threshold: float | None, *, overlap: bool
) -> str:
    """Return why it is unknown when tasks drop."""
    if bank.mode == "isolated":
        return "entries of isolated mode share coordinates, so each owns its whole region"
    if not bank.builds_by_mode:
        return "tasks may share the coordinates of those that they do not build on"
    if len(bank) < 2:
        return "it takes two tasks to see how regions overlap"
    if not overlap:
        return "no two regions overlap, so every task owns its whole region"
    if not known:
        return "no task has both a score and one to compare it with"
    if not any(task.dropped for task in known):
        most = max(task.owned_before for task in known)
        return f"no task dropped, and others own at most {most:.1%} of a region"
    if threshold is None:
        return "tasks that own less of their regions did not drop more often than the others"
    return "no task is expected to own as little of its region as those that dropped"


def _read_scores(where: Path, bank: GraftBank) -> tuple[str, dict[int, tuple[float, float]]]:
    """Return the kind of scores, and by position each task's score and its reference."""
    run = find_run_of_bank(where)
    found: dict[int, tuple[float, float]] = {}
    results = _read_results(run) if run is not None else None
    if results is not None:
        ours, alone = (_learned_scores(result) for result in results)
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


def _read_results(run: Path) -> tuple[RunResult, RunResult] | None:
    """Return a run's results and those of independent fine-tuning beside it, if there are both."""
    if not (run / RESULTS).is_file():
        return None
    ours = read_result(run)
    other = run_folder(run.parent.parent, "independent", ours.seed)
    return (ours, read_result(other)) if (other / RESULTS).is_file() else None


def _learned_scores(result: RunResult) -> dict[str, float]:
    """Return each task's score right after it was learned."""
    rows = zip(result.tasks, enumerate(result.R), strict=False)
    return {task: value for task, (i, row) in rows if (value := row[i]) is not None}
