"""The command `report`: runs as one page for a browser."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cl_graft.cli.options import AsJson, Quiet, argument, flag, option
from cl_graft.cli.output import Output, redirect_prints
from cl_graft.errors import InputError

if TYPE_CHECKING:
    from cl_graft.kinds.rows import Row
    from cl_graft.lab.results.stored_runs import StoredRun


def report_command(
    runs: Annotated[list[Path], argument("RUN...", "Folders of runs or of comparisons.")],
    out: Annotated[
        Path | None,
        option("DIR", "Where to write. Default: report/ in RUN; cl-graft-report for several."),
    ] = None,
    with_text: Annotated[
        bool, flag("--with-text", "Show texts of the data: wrong rows and generated answers.")
    ] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Show runs as one page for a browser, and as figures and tables for a paper.

    The report is written to report/ in the run's folder, or to OUT. Its page, report.html, is one
    file that makes no requests to the network. It begins with the results in a few sentences, then
    shows the table of the strategies with tests of their differences, R, curves along the stream,
    how each task is learned, errors by label, calibration, costs, and how to run it again.
    Figures are beside the page as PNG and SVG, tables as CSV and LaTeX. Several folders must have
    the same tasks and the same model.

    [b]Examples[/b]

      cl-graft report first

      cl-graft report first/grafting/seed0 second/grafting/seed0 --out both
    """
    from cl_graft.lab.experiments.folders import REPORT
    from cl_graft.lab.reporting.page import make_report

    output = Output(quiet, as_json)
    if out is None:
        out = runs[0] / REPORT if len(runs) == 1 else Path("cl-graft-report")
    with redirect_prints():
        written = make_report(runs, out=out, with_text=with_text, read_rows=_read_rows)
    output.result(
        written,
        *written.verdict,
        f"{written.page} ({written.bytes / 1e6:.1f} MB): {written.runs} run(s) of "
        f"{len(written.strategies)} strategies; {len(written.figures)} files in figures/, "
        f"{len(written.tables)} in tables/",
    )


def _read_rows(run: StoredRun) -> Mapping[str, Sequence[Row]]:
    from cl_graft.banks.bank_of_run import read_run_config
    from cl_graft.settings.tasks import load_tasks

    result = run.result
    tasks = load_tasks(read_run_config(run.folder, result).stream, seed=result.seed)
    for task in tasks:
        if result.data_fingerprints.get(task.name) != task.fingerprint:
            raise InputError(f"the data of {task.name} changed since {run.folder} was run")
    return {task.name: task.test for task in tasks}
