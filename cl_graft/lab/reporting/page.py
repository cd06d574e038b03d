"""The page of a report, and its figures and tables as files.

The page holds everything that it shows and asks nobody for anything: a content policy in it forbids
requests and any script but its own.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from urllib.parse import quote

import jinja2

import cl_graft
from cl_graft.lab.figures import png, svg
from cl_graft.lab.reporting.report_data import ReportData, read_report_data
from cl_graft.lab.reporting.sections import make_sections
from cl_graft.lab.reporting.summary_sections import Section
from cl_graft.lab.reporting.task_sections import ReadRows
from cl_graft.runtime.escaping import for_terminal
from cl_graft.storage import only_writer
from cl_graft.storage.files import replace_file

PAGE = "report.html"


@dataclass(frozen=True)
class ReportFiles:
    """Files of a report, and what it stands on: strategies, number of runs, verdict."""

    page: Path
    bytes: int
    figures: tuple[Path, ...]
    tables: tuple[Path, ...]
    strategies: tuple[str, ...]
    runs: int
    verdict: tuple[str, ...]


def make_report(
    folders: Sequence[Path | str],
    *,
    out: Path | str,
    with_text: bool = False,
    read_rows: ReadRows | None = None,
) -> ReportFiles:
    """Report on runs of the same tasks, side by side.

    Args:
        folders: Runs, and outputs of comparisons.
        out: Gets ``report.html``, ``figures/`` and ``tables/``; files of the same names are
            replaced.
        with_text: Whether rows of the data may be shown: generated answers and their inputs, and
            rows that were answered with a wrong label.
        read_rows: Reads the test rows of a run's tasks again; None shows no rows with a wrong
            label, of which a run keeps the number alone.

    Raises:
        InputError: If a folder holds no finished run, or the runs are not of the same tasks and
            model.
        BankError: If a file is altered.
        InUse: If another process writes to `out`.
    """
    out = Path(out)
    data = read_report_data([Path(folder) for folder in folders])
    sections = make_sections(data, with_text=with_text, read_rows=read_rows)
    with only_writer(out), only_writer(out / "figures"), only_writer(out / "tables"):
        drawn, figures = _figures(sections, out / "figures")
        page = _page(data, sections, drawn).encode()
        tables = _tables(sections, out / "tables")
        replace_file(out / PAGE, page)
    names, runs = tuple(data.strategies), len(data.runs)
    return ReportFiles(out / PAGE, len(page), figures, tables, names, runs, sections[0].text)


def _figures(sections: Sequence[Section], folder: Path) -> tuple[dict[str, str], tuple[Path, ...]]:
    """Draw all figures: as files, and for the page the addresses of their content, by name."""
    drawn: dict[str, str] = {}
    made: list[Path] = []
    for picture in (picture for section in sections for picture in section.pictures):
        vector = svg(picture.figure).encode()
        drawn[picture.name] = f"data:image/svg+xml;base64,{base64.b64encode(vector).decode()}"
        picture.figure.set_layout_engine("none")  # that of the SVG stays
        for suffix, content in (("svg", vector), ("png", png(picture.figure))):
            made.append(folder / f"{picture.name}.{suffix}")
            replace_file(made[-1], content)
    return drawn, tuple(made)


def _tables(sections: Sequence[Section], folder: Path) -> tuple[Path, ...]:
    named = [pair for section in sections for pair in section.tables]
    named += [pair for section in sections for _, tables in section.details for pair in tables]
    named += [
        (picture.name, picture.table)
        for section in sections
        for picture in section.pictures
        if picture.table is not None
    ]
    made: list[Path] = []
    for name, table in named:
        for suffix, content in (("tex", table.latex()), ("csv", table.csv())):
            made.append(folder / f"{name}.{suffix}")
            replace_file(made[-1], content.encode())
    return tuple(made)


def _page(data: ReportData, sections: Sequence[Section], drawn: Mapping[str, str]) -> str:
    here = files("cl_graft.lab.reporting")
    style, script, page = (
        here.joinpath(f"page.{suffix}").read_text(encoding="utf-8")
        for suffix in ("css", "js", "html.jinja")
    )
    # Names come from files of others: all is escaped but our own style and script.
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        finalize=lambda value: for_terminal(value) if type(value) is str else value,
    )
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    summary = data.summary
    tasks = summary.tasks
    shown = tasks if len(tasks) <= 8 else [*tasks[:3], f"… ({len(tasks)} tasks)"]
    joint = ", " if summary.orders else " → "
    seeds = ", ".join(map(str, summary.seeds))
    subtitle = f"{summary.model['name']}, seed{'s' * (len(summary.seeds) > 1)} {seeds}"
    if summary.orders:
        subtitle += f", {len(summary.orders)} orders of the tasks"
    return environment.from_string(page).render(
        title=joint.join(shown),
        subtitle=subtitle,
        sections=sections,
        drawn=drawn,
        places={name: number for number, name in enumerate(data.strategies)},
        csv_link=lambda table: f"data:text/csv;charset=utf-8,{quote(table.csv())}",
        style=style,
        script=script,
        script_hash=f"sha256-{digest}",
        version=cl_graft.__version__,
        runs=f"{len(data.runs)} run{'s' * (len(data.runs) > 1)}",
    )
