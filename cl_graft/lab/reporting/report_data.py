"""The data of a report: runs, their summary, and where their regions lie."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

from pydantic import TypeAdapter

from cl_graft.errors import InputError
from cl_graft.lab.results.comparison import (
    Budget,
    ComparisonSummary,
    Failure,
    SweptValues,
    summarize,
)
from cl_graft.lab.results.measures import has_one_metric
from cl_graft.lab.results.run_results import RunResult
from cl_graft.lab.results.stored_runs import StoredRun, check_alike, find_runs
from cl_graft.lab.results.strategy_statistics import normalize
from cl_graft.lab.results.task_files import (
    ANSWERS,
    CURVES,
    ERRORS,
    NUMBERS,
    TaskAnswers,
    TaskCurves,
    TaskErrors,
    TaskNumbers,
)

_BUDGET = TypeAdapter(Budget)
_SWEEP = TypeAdapter(dict[str, SweptValues])


@dataclass(frozen=True)
class ReportData:
    """Everything that a report shows.

    Answers, errors, numbers and curves are by strategy and task, of the first run of each strategy
    that has them.
    """

    folders: tuple[Path, ...]
    runs: tuple[StoredRun, ...]
    summary: ComparisonSummary
    commands: tuple[str, ...]
    answers: Mapping[str, Mapping[str, TaskAnswers]] = field(default_factory=dict)
    errors: Mapping[str, Mapping[str, TaskErrors]] = field(default_factory=dict)
    numbers: Mapping[str, Mapping[str, TaskNumbers]] = field(default_factory=dict)
    curves: Mapping[str, Mapping[str, TaskCurves]] = field(default_factory=dict)

    def results(self, strategy: str) -> list[RunResult]:
        """Return the results of a strategy."""
        return [run.result for run in self.runs if run.result.strategy == strategy]

    @property
    def strategies(self) -> list[str]:
        """Names of the strategies, in the order of the comparison."""
        return list(self.summary.strategies)

    def file_name(self, strategy: str) -> str:
        """Return a strategy's name in names of files: letters, digits and dashes.

        No two are alike: of those that would be, the later ones end with ``_`` and their place.
        """
        made = [re.sub("[^A-Za-z0-9]", "-", name).strip("-") for name in self.strategies]
        number = self.strategies.index(strategy)
        return f"{made[number]}_{number + 1}" if made[number] in made[:number] else made[number]


def read_report_data(folders: Sequence[Path | str]) -> ReportData:
    """Read and summarize the runs under some folders: runs, and outputs of comparisons."""
    places = [Path(folder) for folder in folders]
    everything = find_runs(places)
    runs = [run for run in everything if run.result.complete]
    if not runs:
        raise InputError(f"no run is finished under {', '.join(map(str, places))}")
    check_alike(runs)
    runs = _order(runs)
    failed, budget, sweep = _read_comparisons(places)
    failed += [
        Failure(
            run.result.strategy,
            run.result.seed,
            f"{len(run.result.R)} of {len(run.result.tasks)} tasks learned so far",
        )
        for run in everything
        if not run.result.complete
    ]
    commands = tuple(dict.fromkeys(run.result.command for run in runs))
    orders = list(dict.fromkeys(tuple(run.result.tasks) for run in runs))
    summary = summarize(
        [run.result for run in runs],
        failed,
        config=runs[0].result.config,
        started_by=commands[0],
        budget=budget,
        orders=orders if len(orders) > 1 else (),
        sweep=sweep,
    )
    firsts: dict[str, Path] = {}
    for run in runs:
        firsts.setdefault(run.result.strategy, run.folder)
    return ReportData(
        tuple(places),
        tuple(runs),
        summary,
        commands,
        {name: ANSWERS.read(folder) for name, folder in firsts.items()},
        {name: read for name, folder in firsts.items() if (read := ERRORS.read(folder))},
        {name: read for name, folder in firsts.items() if (read := NUMBERS.read(folder))},
        {name: read for name, folder in firsts.items() if (read := CURVES.read(folder))},
    )


def _order(runs: Sequence[StoredRun]) -> list[StoredRun]:
    """Put grafting first, then the other strategies by what they are compared by, each by seed."""
    results = [run.result for run in runs]
    normalized = normalize(results)
    same_metric = has_one_metric(results[0].metrics)
    scores: dict[str, list[float]] = {}
    for result in results:
        score = result.average_accuracy if same_metric else normalized.average(result)
        scores.setdefault(result.strategy, []).append(score or 0.0)
    best = sorted(scores, key=lambda name: (not name.startswith("grafting"), -mean(scores[name])))
    return sorted(runs, key=lambda run: (best.index(run.result.strategy), run.result.seed))


def _read_comparisons(
    folders: Sequence[Path],
) -> tuple[list[Failure], Budget | None, dict[str, SweptValues]]:
    """Return the runs that failed, and budget and sweep where the folder is one comparison."""
    summaries = [
        _read_summary(folder / "summary.json")
        for folder in folders
        if (folder / "summary.json").is_file()
    ]
    failed = [
        Failure(failure["strategy"], failure["seed"], failure["error"])
        for summary in summaries
        for failure in summary.get("failed", [])
    ]
    alone = summaries[0] if len(folders) == len(summaries) == 1 else {}
    budget = alone.get("budget")
    return (
        failed,
        None if budget is None else _BUDGET.validate_python(budget),
        _SWEEP.validate_python(alone.get("sweep", {})),
    )


def _read_summary(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path}: not the summary of a comparison ({error})") from None
