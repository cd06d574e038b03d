"""Tables, lines and JSON of runs and comparisons: what `run`, `compare` and `demo` show.

Commands import it in their bodies, as it loads torch.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group
from rich.text import Text

from cl_graft.cli.output import make_table
from cl_graft.errors import join_names
from cl_graft.lab.results.comparison import Comparison
from cl_graft.lab.results.comparison_rows import comparison_rows, measure_notes
from cl_graft.lab.results.run_results import RunResult, score_rows
from cl_graft.runtime.escaping import for_terminal
from cl_graft.settings.data_report import data_lines

__all__ = [
    "list_data_notes",
    "list_failures",
    "make_comparison_table",
    "make_score_table",
    "to_json_content",
]


def make_score_table(result: RunResult) -> Group:
    """Show R and the measures of one run."""
    return make_table(*score_rows(result))


def make_comparison_table(runs: Sequence[RunResult]) -> Group:
    """Show each strategy's measures: mean ± standard deviation over seeds, in points."""
    notes = (Text(for_terminal(note)) for note in measure_notes(runs))
    return Group(make_table(*comparison_rows(runs)), *notes)


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
        line if own.keys() == every else f"{line} (seed {join_names(map(str, own))})"
        for line, own in seeds.items()
    ]


def list_failures(comparison: Comparison) -> list[str]:
    """Name the runs that failed, a line each."""
    return [
        f"FAILED: {failure.strategy} seed {failure.seed}: {failure.error}"
        for failure in comparison.failed
    ]


def to_json_content(comparison: Comparison) -> dict[str, object]:
    """Return what ``--json`` writes of a comparison."""
    summary = comparison.summary or {"failed": comparison.failed}
    return {"comparison": summary, "runs": comparison.runs}
