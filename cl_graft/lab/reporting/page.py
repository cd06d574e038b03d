"""The page of a report, and its figures and tables as files.

The page holds everything that it shows and asks nobody for anything: a content policy in it forbids
requests and any script but its own.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from urllib.parse import quote

import jinja2

import cl_graft
from cl_graft.errors import InputError
from cl_graft.lab.reporting.errors_section import ReadRows
from cl_graft.lab.reporting.pictures import Picture
from cl_graft.lab.reporting.report_data import ReportData, read_report_data
from cl_graft.lab.reporting.sections import Section, make_sections
from cl_graft.lab.reporting.tables import Table, as_csv, latex
from cl_graft.metrics.figure_style import TEXT_COLOUR, png, svg
from cl_graft.runtime.escaping import for_terminal
from cl_graft.storage import only_writer
from cl_graft.storage.files import replace_file

__all__ = ["PAGE", "ReportFiles", "make_report"]

PAGE = "report.html"


@dataclass(frozen=True)
class ReportFiles:
    """Files of a report, and what it stands on.

    Attributes:
        page: Path of the page.
        bytes: Size of the page.
        figures: Paths of the figures, each as PNG and as SVG.
        tables: Paths of the tables, each for LaTeX and as CSV.
        strategies: Names of the strategies that are compared.
        runs: Number of runs.
        verdict: Sentences that the page begins with.
    """

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
        InputError: If a folder holds no finished run, the runs are not of the same tasks and
            model, or a folder that is written to is a link within `out` or a run.
        BankError: If a file is altered.
        InUse: If another process writes to `out`.
    """
    out = Path(out)
    data = read_report_data([Path(folder) for folder in folders])
    _refuse_links(out, [Path(folder) for folder in folders])
    sections = make_sections(data, with_text=with_text, read_rows=read_rows)
    with only_writer(out), only_writer(out / "figures"), only_writer(out / "tables"):
        places = {name: place for place, name in enumerate(data.strategies)}
        drawn, figures = _figures(sections, out / "figures", places)
        page = _page(data, sections, drawn, places).encode()
        tables = _tables(sections, out / "tables")
        replace_file(out / PAGE, page)
    names, runs = tuple(data.strategies), len(data.runs)
    return ReportFiles(out / PAGE, len(page), figures, tables, names, runs, sections[0].text)


def _refuse_links(out: Path, runs: Sequence[Path]) -> None:
    """Refuse to write where a link leads that may have come with a run of somebody else."""
    own = [out] if any(out.parent == run for run in runs) else []
    for place in (*own, out / "figures", out / "tables"):
        if place.is_symlink():
            raise InputError(
                f"{place} is a link to {os.path.realpath(place)}, where files would be replaced; "
                "expected a folder: delete the link, or write elsewhere with --out"
            )


def _figures(
    sections: Sequence[Section], folder: Path, places: Mapping[str, int]
) -> tuple[dict[str, str], tuple[Path, ...]]:
    """Draw all figures: for the page, by name, and, but for those of one seed, as files."""
    drawn: dict[str, str] = {}
    made: list[Path] = []
    for picture in (picture for section in sections for picture in section.pictures):
        text = svg(picture.figure)
        drawn[picture.name] = _inline(text, picture, places)
        picture.figure.set_layout_engine("none")  # that of the SVG stays
        for suffix, content in (("svg", text.encode()), ("png", png(picture.figure))):
            made.append(folder / f"{picture.name}.{suffix}")
            replace_file(made[-1], content)
    for picture in (picture for view in _seed_views(sections) for picture in view.pictures):
        drawn[picture.name] = _inline(svg(picture.figure), picture, places)
    return drawn, tuple(made)


def _seed_views(sections: Sequence[Section]) -> list[Section]:
    return [view for section in sections for _, view in section.seeds]


def _inline(text: str, picture: Picture, places: Mapping[str, int]) -> str:
    """Return an SVG for the inside of a page: ids of its own, and text in the page's colour.

    What belongs to a strategy says which, and what is a mark says its values.
    """
    text = text[text.index("<svg") :].replace(TEXT_COLOUR, "currentColor")
    names = [*picture.marks]

    def name(found: re.Match[str]) -> str:
        own = names[int(found["number"])]
        group = f'{found[1]} data-strategy="{places[own]}">'
        if found["kind"] != "mark":
            return group
        values = picture.marks[own][int(found["which"] or 0)]
        said = "\n".join(escape(for_terminal(line)) for line in (own, *values))
        return f"{group}<title>{said}</title>"

    # Hundredths of a pixel are enough: half of a figure's characters are decimals.
    text = re.sub(r"<[^>]*>", lambda tag: re.sub(r"(\.\d\d)\d+", r"\1", tag[0]), text)
    text = re.sub(r'(<g id="part(?P<number>\d+)-(?P<kind>[a-z]+)(?P<which>\d*)")>', name, text)
    text = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{picture.name}-", text)
    label = f'role="img" aria-label="{escape(picture.title)}"'
    width = 96 * picture.figure.get_figwidth()
    return text.replace("<svg", f'<svg {label} style="--width: {width:.0f}px"', 1)


def _tables(sections: Sequence[Section], folder: Path) -> tuple[Path, ...]:
    everything = [*sections, *_seed_views(sections)]
    named = [pair for section in everything for pair in section.tables]
    named += [pair for section in sections for own in section.details for pair in own.tables]
    named += [
        (picture.name, picture.table)
        for section in everything
        for picture in section.pictures
        if picture.table is not None
    ]
    made: list[Path] = []
    for name, table in named:
        for suffix, content in (("tex", latex(table)), ("csv", as_csv(table))):
            made.append(folder / f"{name}.{suffix}")
            replace_file(made[-1], content.encode())
    return tuple(made)


def _csv_link(table: Table) -> str:
    """Return the address of a table as CSV; the page itself holds it."""
    return f"data:text/csv;charset=utf-8,{quote(as_csv(table))}"


def _page(
    data: ReportData,
    sections: Sequence[Section],
    drawn: Mapping[str, str],
    places: Mapping[str, int],
) -> str:
    here = files("cl_graft.lab.reporting")
    style, script, page = (
        here.joinpath(f"page.{suffix}").read_text(encoding="utf-8")
        for suffix in ("css", "js", "html.jinja")
    )
    # Names come from files of others: all is escaped but our own style, script and drawings.
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
        places=places,
        seeds=summary.seeds if any(section.seeds for section in sections) else [],
        csv_link=_csv_link,
        style=style,
        script=script,
        script_hash=f"sha256-{digest}",
        version=cl_graft.__version__,
        runs=f"{len(data.runs)} run{'s' * (len(data.runs) > 1)}",
    )
