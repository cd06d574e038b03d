"""Tables, lines and JSON of runs and comparisons; commands import it late, as it loads torch."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group

from cl_graft.cli.output import make_table
from cl_graft.errors import join_names
from cl_graft.lab.experiments.folders import resume_command
from cl_graft.lab.results.comparison import Comparison, ComparisonSummary
from cl_graft.lab.results.run_results import RunResult, score_table
from cl_graft.lab.results.summary_tables import brief_tables, summary_notes
from cl_graft.lab.results.tables import Table
from cl_graft.settings import ExperimentConfig
from cl_graft.settings.data_report import data_lines
from cl_graft.settings.run_files import CONFIG


def show_scores(result: RunResult) -> Group:
    """Show R of one run."""
    return _show(score_table(result))


def show_summary(summary: ComparisonSummary | None) -> list[Group | str]:
    """Show each strategy's measures, and what they are means of; nothing without a run."""
    return [*map(_show, brief_tables(summary)), *summary_notes(summary)] if summary else []


def list_data_notes(runs: Sequence[RunResult]) -> list[str]:
    """Say what was left out of the data, cut, or looks suspicious, each once.

    What holds for the data of some seeds alone names these.
    """
    seeds: dict[str, dict[int, None]] = {}
    for run in runs:
        for line in data_lines(run.data):
            seeds.setdefault(line, {})[run.seed] = None
    every = {run.seed for run in runs}
    return [
        line if noted.keys() == every else f"{line} (seed {join_names(map(str, noted))})"
        for line, noted in seeds.items()
    ]


def list_failures(comparison: Comparison, config: ExperimentConfig) -> list[str]:
    """Name the runs that failed, a line each, and say how to go on with them."""
    out = comparison.out
    lines = [
        f"FAILED: {failure.strategy} seed {failure.seed}: {failure.error}"
        for failure in comparison.failed
    ]
    if lines and (out / CONFIG).is_file():
        again = resume_command("compare", out, config)
        lines.append(f"What was learned is kept; try again with: {again}")
    elif lines:
        lines.append("Nothing was learned: the folder is free for another start.")
    return lines


def to_json_content(comparison: Comparison) -> dict[str, object]:
    """Return what ``--json`` writes of a comparison."""
    summary = comparison.summary or {"failed": comparison.failed}
    return {"comparison": summary, "runs": comparison.runs}


def _show(table: Table) -> Group:
    return make_table(table.caption, table.head, table.texts)
