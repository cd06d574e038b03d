"""Runs and comparisons as tables for people."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from rich.console import Group

from cl_graft.cli.output import table
from cl_graft.reporting.markdown import points, spread
from cl_graft.results.statistics import over_seeds, seed_means

if TYPE_CHECKING:
    from cl_graft.results.run_results import RunResult

__all__ = ["comparison_table", "data_notes", "run_tables"]

_MEASURES = ("average_accuracy", "backward_transfer", "forward_transfer", "forgetting")


def run_tables(result: RunResult) -> list[Group]:
    """Show R and the measures of one run."""
    names = list(result.tasks)
    rows = [
        (f"after {name}", *(points(value) for value in row))
        for name, row in zip(names, result.R, strict=True)
    ]
    title = f"{result.strategy}, seed {result.seed}: score on each task after each task, in %"
    return [table(title, ("", *names), rows)]


def data_notes(cells: Sequence[RunResult]) -> list[str]:
    """Say what was left out of the data, cut, or looks suspicious, each once."""
    from cl_graft.results.data_report import data_lines

    return list(dict.fromkeys(line for cell in cells for line in data_lines(cell.data)))


def comparison_table(cells: Sequence[RunResult]) -> Group:
    """Show each strategy's measures: mean ± standard deviation over seeds, in points."""
    strategies = list(dict.fromkeys(cell.strategy for cell in cells))
    rows = []
    for strategy in strategies:
        own = [cell for cell in cells if cell.strategy == strategy]
        stated = (over_seeds(seed_means(own, attrgetter(name))) for name in _MEASURES)
        rows.append((strategy, *map(spread, stated)))
    columns = ("strategy", *(f"{name.replace('_', ' ')}" for name in _MEASURES))
    seeds = len({cell.seed for cell in cells})
    return table(f"{seeds} seed{'s' if seeds > 1 else ''}, in points", columns, rows)
