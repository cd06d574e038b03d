"""Runs found under folders, with a name for each strategy that tells them apart.

A folder is that of a run, or what a comparison wrote, with a run in each ``<strategy>/seed<k>/``.
Reports read them from here, whatever wrote them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cl_graft.errors import InputError
from cl_graft.lab.results.run_results import RunResult, read_result
from cl_graft.models.answering_config import describe_other_settings
from cl_graft.settings.run_files import BANK, RESULTS
from cl_graft.storage.bank_folder import INDEX


@dataclass(frozen=True)
class StoredRun:
    """A run and its folder; the strategy's name tells runs of several folders or values apart."""

    folder: Path
    result: RunResult

    @property
    def bank(self) -> Path | None:
        """Folder of the run's bank, if there is one."""
        bank = self.folder / BANK
        return bank if (bank / INDEX).is_file() else None


def find_runs(folders: Sequence[Path]) -> list[StoredRun]:
    """Read all runs under some folders, finished or not."""
    runs = [
        (folder, StoredRun(run, _read(run))) for folder in folders for run in _run_folders(folder)
    ]
    return _name_apart(runs)


def check_alike(runs: Sequence[StoredRun]) -> None:
    """Refuse runs of different tasks, metrics or base models: they cannot stand in one table."""
    first = runs[0]
    for run in runs[1:]:
        tasks, other = sorted(first.result.tasks), sorted(run.result.tasks)
        if tasks != other:
            raise InputError(
                f"{first.folder} learned {', '.join(tasks)}, {run.folder} learned "
                f"{', '.join(other)}: a report compares runs of the same tasks, so make one each"
            )
        for task, metric in first.result.metrics.items():
            if (other := run.result.metrics.get(task)) != metric:
                raise InputError(
                    f"{first.folder} scores {task} by {metric}, {run.folder} by {other}: such "
                    "scores cannot be compared, so make a report each"
                )
        bases = [each.result.model for each in (first, run)]
        if bases[0]["fingerprint"] != bases[1]["fingerprint"] or describe_other_settings(
            *(base.get("config") for base in bases)
        ):
            raise InputError(
                f"{first.folder} and {run.folder} are of different base models "
                f"({first.result.model['name']}, {run.result.model['name']}): make a report each"
            )


def swept_values(folder: str) -> str:
    """Return the swept values in the name of a sweep's folder, such as ``"density=0.001"``."""
    return " ".join(part for part in folder.split(",") if "=" in part)


def _run_folders(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder}")
    if (folder / RESULTS).is_file():
        return [folder]
    files = [*folder.glob(f"*/seed*/{RESULTS}"), *folder.glob(f"*/*/seed*/{RESULTS}")]
    if not files:
        raise InputError(
            f"{folder} holds no run: expected the folder of a run (with {RESULTS}), or what "
            "cl-graft compare was told to write --out to"
        )
    return sorted(path.parent for path in files)


def _read(run: Path) -> RunResult:
    """Read a run, and add the swept values to the name of its strategy."""
    result = read_result(run)
    swept = swept_values(run.resolve().parent.parent.name)
    return replace(result, strategy=f"{result.strategy} {swept}".strip())


def _name_apart(runs: Sequence[tuple[Path, StoredRun]]) -> list[StoredRun]:
    """Add the folder to a strategy's name where two folders hold the same run."""
    folders: dict[str, list[Path]] = {}
    for folder, run in runs:
        of_strategy = folders.setdefault(run.result.strategy, [])
        of_strategy += [] if folder in of_strategy else [folder]
    counts = Counter((r.result.strategy, r.result.seed, tuple(r.result.tasks)) for _, r in runs)
    clashing = {strategy for (strategy, _, _), count in counts.items() if count > 1}
    named: list[StoredRun] = []
    for folder, run in runs:
        strategy = run.result.strategy
        if strategy in clashing:
            names = [path.resolve().name for path in folders[strategy]]
            apart = len(set(names)) == len(names)
            name = folder.resolve().name if apart else str(folder)
            run = replace(run, result=replace(run.result, strategy=f"{strategy} ({name})"))
        named.append(run)
    return named
