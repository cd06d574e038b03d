"""Runs and comparisons as tables for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group

from cl_graft.cli.output import table

if TYPE_CHECKING:
    from cl_graft.results.run_results import RunResult

__all__ = ["comparison_table", "data_notes", "run_tables"]


def run_tables(result: RunResult) -> list[Group]:
    """Show R and the measures of one run."""
    from cl_graft.results.run_results import score_rows

    return [table(*score_rows(result))]


def data_notes(runs: Sequence[RunResult]) -> list[str]:
    """Say what was left out of the data, cut, or looks suspicious, each once."""
    from cl_graft.results.data_report import data_lines

    return list(dict.fromkeys(line for run in runs for line in data_lines(run.data)))


def comparison_table(runs: Sequence[RunResult]) -> Group:
    """Show each strategy's measures: mean ± standard deviation over seeds, in points."""
    from cl_graft.results.comparison import comparison_rows

    return table(*comparison_rows(runs))
