"""The sections of a report: what is shown, in which order, and in which words."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from cl_graft.lab.reporting import tables
from cl_graft.lab.reporting.answers_section import answer_tables, answers_text
from cl_graft.lab.reporting.errors_section import (
    ErrorDetails,
    ReadRows,
    error_details,
    error_tables,
    errors_text,
)
from cl_graft.lab.reporting.learning_section import draw_learning, learning_text
from cl_graft.lab.reporting.markdown import NOTHING_SAID
from cl_graft.lab.reporting.measure_columns import has_several_metrics, summary_notes
from cl_graft.lab.reporting.numbers_section import draw_numbers
from cl_graft.lab.reporting.pictures import (
    MOST_STRATEGIES,
    Picture,
    disjoint_strategies,
    draw_anatomies,
    draw_costs,
    draw_curve,
    draw_matrices,
    draw_overlaps,
    draw_rank_diagram,
    draw_reliability,
)
from cl_graft.lab.reporting.report_data import ReportData
from cl_graft.lab.reporting.stream_section import NOT_OURS, named_stream, stream_notes
from cl_graft.lab.reporting.tables import Table
from cl_graft.lab.reporting.verdict import write_verdict
from cl_graft.lab.results import stream_measures
from cl_graft.lab.results.formatting import model_text, pairs_text, schedule_text
from cl_graft.lab.results.measures import measure_title, tasks_by_metric
from cl_graft.lab.results.run_results import RunResult
from cl_graft.metrics.figure_style import MOST_PANELS
from cl_graft.metrics.statistics import LEAST_SAMPLES
from cl_graft.settings.data_report import data_lines

__all__ = ["Section", "make_sections"]

_MOST_SEEDS = 5
"""Seeds up to which each can be looked at alone: more would make the page too large."""


@dataclass(frozen=True)
class Section:
    """A section of the page.

    Attributes:
        name: Anchor of the section.
        title: Heading of the section.
        text: Paragraphs before the tables and pictures.
        tables: Tables, each with the name of its file.
        pictures: Pictures after the tables.
        lines: Items of a list after the pictures.
        code: Commands after the list, each with what it does.
        details: Tables of one strategy each, which unfold.
        seeds: Tables and pictures of the runs of one seed each, which the page shows in place of
            those of all runs where that seed is picked.
    """

    name: str
    title: str
    text: tuple[str, ...] = ()
    tables: tuple[tuple[str, Table], ...] = ()
    pictures: tuple[Picture, ...] = ()
    lines: tuple[str, ...] = ()
    code: tuple[tuple[str, str], ...] = ()
    details: tuple[ErrorDetails, ...] = ()
    seeds: tuple[tuple[int, Section], ...] = ()


def make_sections(
    data: ReportData, *, with_text: bool = False, read_rows: ReadRows | None = None
) -> list[Section]:
    """Return the sections of which there is something to say, in their order.

    Args:
        data: Data of the report.
        with_text: Whether rows of the data may be shown.
        read_rows: Reads the rows that were answered wrong; None shows none.
    """
    made = (
        Section("verdict", "In short", tuple(write_verdict(data))),
        _with_seeds(_comparison, data),
        _stream(data),
        _with_seeds(_matrices, data),
        _with_seeds(_along, data),
        _learning(data),
        _errors(data, read_rows=read_rows if with_text else None),
        _answers(data, with_text=with_text),
        _calibration(data),
        _anatomy(data),
        _overlap(data),
        _costs(data),
        Section(
            "strategies",
            "What each strategy is",
            tables=(("strategies", tables.strategies(data)),),
        ),
        _again(data),
    )
    return [section for section in made if section is not None]


def _with_seeds(make: Callable[[ReportData], Section | None], data: ReportData) -> Section | None:
    """Make a section of all runs, and of those of each seed if there are several."""
    section, seeds = make(data), data.summary.seeds
    if section is None or not 1 < len(seeds) <= _MOST_SEEDS:
        return section
    made = ((seed, make(data.of_seed(seed))) for seed in seeds)
    own = tuple((seed, _name_seed(view, seed)) for seed, view in made if view is not None)
    return replace(section, seeds=own)


def _name_seed(view: Section, seed: int) -> Section:
    """Name a seed's tables and pictures after it; a picture of one strategy is its table alone."""
    numbers = tuple(
        (picture.name, picture.table)
        for picture in view.pictures
        if picture.strategy and picture.table is not None
    )
    named = tuple(
        (f"{name}-seed{seed}", replace(table, caption=f"Seed {seed}: {table.caption}"))
        for name, table in (*view.tables, *numbers)
    )
    pictures = tuple(
        replace(
            picture,
            name=f"{picture.name}-seed{seed}",
            title=f"Seed {seed}: {picture.title}",
            table=picture.table
            and replace(picture.table, caption=f"Seed {seed}: {picture.table.caption}"),
        )
        for picture in view.pictures
        if not picture.strategy
    )
    return Section(view.name, view.title, tables=named, pictures=pictures)


def _comparison(data: ReportData) -> Section:
    summary, names = data.summary, data.strategies
    text = [
        f"{len(names)} {'strategy' if len(names) == 1 else 'strategies'}, "
        f"{len(summary.tasks)} tasks, {len(data.runs)} runs. The best value of a column, of all "
        "strategies, is bold and marked ★. A heading sorts the table."
    ]
    metrics = " and ".join(dict.fromkeys(summary.metrics.values()))
    text += summary_notes(summary) or [f"Tasks are scored by {metrics}."]
    few = max(len({r.seed for r in data.results(name)}) for name in names) < LEAST_SAMPLES
    text += [NOTHING_SAID] if few else []
    failed = tuple(
        f"Not finished: {one.strategy}, seed {one.seed}: {one.error}" for one in summary.failed
    )
    made = [("comparison", tables.comparison(data))]
    if has_several_metrics(summary):
        made.append(("by-metric", tables.by_metric(data)))
    if summary.other_metrics:
        made.append(("other-metrics", tables.other_metrics(data)))
    return Section(
        "comparison",
        "Comparison",
        tuple(text),
        tuple(made),
        (draw_rank_diagram(summary.ranks),) if summary.ranks and not few else (),
        failed,
    )


def _stream(data: ReportData) -> Section | None:
    """Show what others published on the stream; it enters no number of the page."""
    config = data.runs[0].result.config
    stream = named_stream(config)
    if stream is None:
        return None
    published = stream.published
    return Section(
        "named-stream",
        f"The stream {config['stream']['name']}",
        (NOT_OURS,) if published else (),
        (("published", tables.show_published(published)),) if published else (),
        lines=tuple(stream_notes(stream, config["stream"])),
    )


def _matrices(data: ReportData) -> Section | None:
    if len(data.summary.tasks) == 1:
        return None
    text = "R[i, j] is the score on task j after learning task i, in points."
    if has_several_metrics(data.summary):
        text += " Each column is in its task's own metric."
    if data.summary.orders:
        text += " Shown is the first of the orders that were compared."
    if len(data.strategies) > MOST_STRATEGIES:
        text += f" Shown are the first {MOST_STRATEGIES} strategies; results.json holds the others."
    pictures = tuple(draw_matrices(data))
    return Section("matrices", "Scores after each task", (text,), pictures=pictures)


def _along(data: ReportData) -> Section | None:
    several = has_several_metrics(data.summary)
    averages: list[Picture] = []
    losses: list[Picture] = []
    for metric in tasks_by_metric(data.summary.metrics):
        over = f"the {metric} tasks" if several else "the tasks"
        suffix = f"-{metric.replace('_', '-')}" if several else ""
        average = measure_title("average", metric)
        averages += draw_curve(
            data,
            f"average{suffix}" if several else "accuracy",
            f"{average[0].upper()}{average[1:]} over {over} learned so far, after each",
            f"{average} (%)",
            partial(stream_measures.average_after, metric=metric),
        )
        losses += draw_curve(
            data,
            f"forgetting{suffix}",
            f"Forgetting of {over} learned so far, after each",
            "forgetting (points)",
            partial(stream_measures.forgetting_after, metric=metric),
        )
    pictures = (*averages, *losses)
    return Section("stream", "Along the stream", pictures=pictures) if pictures else None


def _learning(data: ReportData) -> Section | None:
    pictures = tuple(draw_learning(data))
    text = (learning_text(data),)
    return Section("learning", "Learning each task", text, pictures=pictures) if pictures else None


def _errors(data: ReportData, *, read_rows: ReadRows | None) -> Section | None:
    if not data.errors and not data.numbers:
        return None
    details, reason = error_details(data, read_rows)
    text = errors_text(data, details)
    if read_rows is None:
        text += ("cl-graft report --with-text shows some of the rows.",)
    return Section(
        "errors",
        "Errors of each task",
        text,
        error_tables(data),
        tuple(draw_numbers(data)),
        lines=(reason,) if reason else (),
        details=details,
    )


def _answers(data: ReportData, *, with_text: bool) -> Section | None:
    made = answer_tables(data, with_text=with_text)
    text = answers_text(data, with_text=with_text)
    return Section("answers", "Answers in words", (text,), made) if made else None


def _calibration(data: ReportData) -> Section | None:
    if all(row.ece.mean is None for row in data.summary.strategies.values()):
        return None  # regressions alone
    pictures = [
        *draw_curve(
            data, "ece", "Calibration error, mean over the tasks learned so far, after each",
            "ECE (points)", stream_measures.ece_after,
        )
    ]  # fmt: skip
    with_bins = (n for n in data.strategies[:MOST_STRATEGIES] if data.results(n)[0].reliability)
    pictures += [draw_reliability(data, name) for name in with_bins]
    text = (
        "The expected calibration error says how far confidence is from accuracy. Here confidence "
        "is the model's own softmax; cl-graft predict divides by the task's temperature.",
    )
    return Section("calibration", "Calibration", text, pictures=tuple(pictures))


def _anatomy(data: ReportData) -> Section | None:
    pictures = tuple(draw_anatomies(data))
    if not pictures:
        return None
    text = "Where in the model the regions lie: layers from the input up, modules within a layer."
    if max(len(found) for found in data.anatomies.values()) > MOST_PANELS:
        text += f" Shown are the first {MOST_PANELS} tasks."
    return Section("anatomy", "Anatomy of the regions", (text,), pictures=pictures)


def _overlap(data: ReportData) -> Section | None:
    pictures = tuple(draw_overlaps(data))
    apart = disjoint_strategies(data)
    if not pictures and not apart:
        return None
    text = [
        "With avoid_owned (the default) a region is chosen among the weights that no earlier task "
        "owns, so nothing overlaps."
    ]
    text += ["The figures show |region i ∩ region j| / |region j|, in %."] if pictures else []
    lines = (f"No weight is in the regions of two tasks: {', '.join(apart)}.",) if apart else ()
    return Section("overlap", "Overlap between tasks", tuple(text), pictures=pictures, lines=lines)


def _costs(data: ReportData) -> Section:
    text = "Seconds are those of all phases, also where the cache answered one."
    made = (("costs", tables.costs(data)),)
    # With one strategy, figures have nothing to compare.
    pictures = tuple(draw_costs(data)) if len(data.strategies) > 1 else ()
    return Section("costs", "Costs", (text,), made, pictures)


def _again(data: ReportData) -> Section:
    summary = data.summary
    lines = [
        model_text(summary.model),
        *_schedules(data.runs[0].result),
        *data_lines(summary.data),
        f"machine: {pairs_text(summary.machine)}",
        f"versions: {pairs_text(summary.versions)}",
        f"runs: {len(data.runs)}, under {', '.join(map(str, data.folders))}",
    ]
    packages = {"cl-graft", "torch", "transformers", "avalanche-lib", "datasets", "numpy"}
    pins = " ".join(
        f"{name}=={version.split('+')[0]}"
        for name, version in summary.versions.items()
        if name in packages and re.fullmatch(r"[0-9][0-9A-Za-z.!+_-]*", version)
    )
    code = [("Run it again", command) for command in data.commands]
    code += [("With these versions", f"pip install {pins}")] if pins else []
    code += [
        ("Prove that nothing was forgotten", shlex.join(["cl-graft", "verify", str(run.folder)]))
        for run in data.runs
        if run.bank is not None
    ][:1]
    return Section("again", "To run it again", lines=tuple(lines), code=tuple(code))


def _schedules(result: RunResult) -> list[str]:
    """Say how tasks were trained, those with the same schedule in one line."""
    tasks: dict[str, list[str]] = {}
    for task, s in result.schedules.items():
        tasks.setdefault(schedule_text(s), []).append(task)
    if len(tasks) == 1:
        return [f"each task: {said}" for said in tasks]
    return [f"{', '.join(names)}: {said}" for said, names in tasks.items()]
