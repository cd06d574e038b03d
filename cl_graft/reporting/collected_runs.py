"""What a report is made of: the runs under the folders that were named, and what they sum up to."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

from cl_graft.banks.file_checks import recorded_config
from cl_graft.errors import BankError, InputError
from cl_graft.experiments.comparison.sweep import label_of
from cl_graft.experiments.folders import BANK
from cl_graft.grafts.anatomy import Anatomy, anatomy
from cl_graft.reporting.summary import summarize
from cl_graft.results.run_results import RESULTS, Failure, RunResult, read_result
from cl_graft.storage import load_bank

__all__ = ["Material", "RunIn", "gather"]


@dataclass(frozen=True)
class RunIn:
    """A run and where it lies.

    Attributes:
        folder: The run's.
        result: Its results; the strategy carries the name of the folder that was asked for where
            several of them hold the same one.
    """

    folder: Path
    result: RunResult

    @property
    def bank(self) -> Path | None:
        """Its bank's folder, if it left one."""
        bank = self.folder / BANK
        return bank if (bank / "bank.json").is_file() else None


@dataclass(frozen=True)
class Material:
    """Everything that is shown.

    Attributes:
        folders: The folders that were named.
        runs: The runs, grouped by strategy.
        summary: What `summarize` says of them.
        anatomies: Of the first run with a bank of each strategy, by strategy and task: where its
            regions lie.
        commands: How the runs were started, each once.
    """

    folders: tuple[Path, ...]
    runs: tuple[RunIn, ...]
    summary: Mapping[str, Any]
    anatomies: Mapping[str, Mapping[str, Anatomy]]
    commands: tuple[str, ...]

    def of(self, strategy: str) -> list[RunResult]:
        """Return the results of a strategy."""
        return [run.result for run in self.runs if run.result.strategy == strategy]

    @property
    def strategies(self) -> list[str]:
        """Names of the strategies, in the order of the comparison."""
        return list(self.summary["strategies"])


def gather(folders: Sequence[Path | str]) -> Material:
    """Read the runs under some folders.

    Args:
        folders: Runs, and outputs of comparisons.

    Raises:
        InputError: If a folder holds no run, or the runs are not of the same tasks and model.
        BankError: If a file is altered.
    """
    places = [Path(folder) for folder in folders]
    found = [(folder, RunIn(run, _read(run))) for folder in places for run in _runs_in(folder)]
    everything = _told_apart(found)
    runs = [run for run in everything if run.result.complete]
    unfinished = [run for run in everything if not run.result.complete]
    if not runs:
        raise InputError(f"no run is finished under {', '.join(map(str, places))}")
    _check_alike(runs)
    runs = _in_order(runs)
    first = runs[0]
    config = recorded_config(first.folder, first.result)
    seeds = sorted({run.result.seed for run in runs})
    failed, budget = _said_by_comparisons(places)
    failed += [
        Failure(
            run.result.strategy,
            run.result.seed,
            f"{len(run.result.R)} of {len(run.result.tasks)} tasks learned so far",
        )
        for run in unfinished
    ]
    commands = tuple(dict.fromkeys(run.result.command for run in runs))
    orders = list(dict.fromkeys(tuple(run.result.tasks) for run in runs))
    summary = summarize(
        config.model_copy(update={"seeds": seeds}),
        [run.result for run in runs],
        failed,
        started_by=commands[0],
        budget=budget,
        orders=orders if len(orders) > 1 else (),
    )
    return Material(
        tuple(places),
        tuple(runs),
        summary,
        _anatomies(runs),
        commands,
    )


def _runs_in(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder}")
    if (folder / RESULTS).is_file():
        return [folder]
    places = [*folder.glob(f"*/seed*/{RESULTS}"), *folder.glob(f"*/*/seed*/{RESULTS}")]
    if not places:
        raise InputError(
            f"{folder} holds no run: expected the folder of a run (with {RESULTS}), or what "
            "cl-graft compare was told to write --out to"
        )
    return sorted(place.parent for place in places)


def _read(run: Path) -> RunResult:
    """Read a run; its strategy carries the swept values that the folder of its comparison names."""
    result = read_result(run)
    label = label_of(run.resolve().parent.parent.name)
    return replace(result, strategy=f"{result.strategy} {label}".strip())


def _told_apart(found: Sequence[tuple[Path, RunIn]]) -> list[RunIn]:
    """Name strategies after the folder they were asked for in, where that is needed."""
    homes: dict[str, list[Path]] = {}
    for asked, run in found:
        folders = homes.setdefault(run.result.strategy, [])
        folders += [] if asked in folders else [asked]
    cells = Counter((r.result.strategy, r.result.seed, tuple(r.result.tasks)) for _, r in found)
    clashing = {strategy for (strategy, _, _), count in cells.items() if count > 1}
    named: list[RunIn] = []
    for asked, run in found:
        strategy = run.result.strategy
        if strategy in clashing:
            own = [home.resolve().name for home in homes[strategy]]
            name = asked.resolve().name if len(set(own)) == len(own) else str(asked)
            run = replace(run, result=replace(run.result, strategy=f"{strategy} ({name})"))
        named.append(run)
    return named


def _check_alike(runs: Sequence[RunIn]) -> None:
    """Refuse runs that cannot stand in one table."""
    first = runs[0]
    for run in runs[1:]:
        own, other = sorted(first.result.tasks), sorted(run.result.tasks)
        if own != other:
            raise InputError(
                f"{first.folder} learned {', '.join(own)}, {run.folder} learned "
                f"{', '.join(other)}: a report compares runs of the same tasks, so make one each"
            )
        if first.result.model["fingerprint"] != run.result.model["fingerprint"]:
            raise InputError(
                f"{first.folder} and {run.folder} are of different base models "
                f"({first.result.model['name']}, {run.result.model['name']}): make a report each"
            )


def _in_order(runs: Sequence[RunIn]) -> list[RunIn]:
    """Put grafting first, then the other strategies by average accuracy, each by seed."""
    scores: dict[str, list[float]] = {}
    for run in runs:
        scores.setdefault(run.result.strategy, []).append(run.result.average_accuracy or 0.0)
    best = sorted(scores, key=lambda name: (not name.startswith("grafting"), -mean(scores[name])))
    return sorted(runs, key=lambda run: (best.index(run.result.strategy), run.result.seed))


def _said_by_comparisons(folders: Sequence[Path]) -> tuple[list[Failure], dict[str, Any] | None]:
    """Return the cells that failed, and the budget where one comparison had one."""
    summaries = [
        _read_summary(folder / "summary.json")
        for folder in folders
        if (folder / "summary.json").is_file()
    ]
    failed = [
        Failure(cell["strategy"], cell["seed"], cell["error"])
        for summary in summaries
        for cell in summary.get("failed", [])
    ]
    return failed, summaries[0].get("budget") if len(folders) == len(summaries) == 1 else None


def _read_summary(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path}: not the summary of a comparison ({error})") from None


def _anatomies(runs: Sequence[RunIn]) -> dict[str, dict[str, Anatomy]]:
    found: dict[str, dict[str, Anatomy]] = {}
    for run in runs:
        if run.result.strategy in found or run.bank is None:
            continue
        try:
            bank = load_bank(run.bank)
        except BankError as error:
            raise type(error)(f"{run.bank}: {error}") from None
        found[run.result.strategy] = {e.task: anatomy(e.claimed) for e in bank.entries}
    return found
