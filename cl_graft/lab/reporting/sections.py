"""The sections of a report: what is shown, in which order, and in which words."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from functools import partial

from cl_graft.lab.reporting import task_sections
from cl_graft.lab.reporting.pictures import (
    MOST_STRATEGIES,
    draw_bytes,
    draw_curve,
    draw_matrices,
    draw_overlaps,
    draw_reliability,
    draw_sweeps,
)
from cl_graft.lab.reporting.report_data import ReportData
from cl_graft.lab.reporting.summary_sections import Section, origin_lines, summary_sections
from cl_graft.lab.reporting.task_sections import ReadRows
from cl_graft.lab.reporting.verdict import write_verdict
from cl_graft.lab.results import summary_tables
from cl_graft.lab.results.measures import (
    has_one_metric,
    measure_along,
    measure_title,
    tasks_by_metric,
)
from cl_graft.lab.results.run_results import RunResult
from cl_graft.lab.results.tables import schedule_text


def make_sections(
    data: ReportData, *, with_text: bool = False, read_rows: ReadRows | None = None
) -> list[Section]:
    """Return the sections of which there is something to say, in their order."""
    summary = data.summary
    comparison, *others = summary_sections(summary)
    costs = replace(others.pop(), pictures=tuple(draw_bytes(summary)))
    made = (
        Section("verdict", "In short", tuple(write_verdict(data))),
        replace(comparison, pictures=tuple(draw_sweeps(summary))),
        *others,
        _matrices(data),
        _along(data),
        task_sections.learning(data),
        task_sections.errors(data, read_rows=read_rows if with_text else None),
        task_sections.answers(data, with_text=with_text),
        _calibration(data),
        _regions(data),
        costs,
        Section(
            "strategies",
            "What each strategy is",
            tables=(("strategies", summary_tables.strategies(summary)),),
        ),
        _again(data),
    )
    return [section for section in made if section is not None]


def _matrices(data: ReportData) -> Section | None:
    if len(data.summary.tasks) == 1:
        return None
    text = "R[i, j] is the score on task j after learning task i, in points."
    if not has_one_metric(data.summary.metrics):
        text += " Each column is in its task's own metric."
    if data.summary.orders:
        text += " Shown is the first of the orders that were compared."
    if len(data.strategies) > MOST_STRATEGIES:
        text += f" Shown are the first {MOST_STRATEGIES} strategies; results.json holds the others."
    pictures = tuple(draw_matrices(data))
    return Section("matrices", "Scores after each task", (text,), pictures=pictures)


def _regions(data: ReportData) -> Section | None:
    pictures = tuple(draw_overlaps(data))
    text = ("A later task trains only those weights of its region that no earlier task owns.",)
    return Section("regions", "Overlap of regions", text, pictures=pictures) if pictures else None


def _along(data: ReportData) -> Section | None:
    groups = tasks_by_metric(data.summary.metrics)
    several = len(groups) > 1
    pictures = []
    for name in ("average", "forgetting"):
        for metric in groups:
            over = f"the {metric} tasks" if several else "the tasks"
            title = measure_title(name, metric) if name == "average" else name
            pictures += draw_curve(
                data,
                f"{name}-{metric.replace('_', '-')}" if several else name,
                f"{title[0].upper()}{title[1:]} of {over} learned so far, after each",
                f"{title} ({'%' if name == 'average' else 'points'})",
                partial(measure_along, name=name, metric=metric),
            )
    text = ("Lines are means over runs, bands their range.",)
    shown = tuple(pictures)
    return Section("stream", "Along the stream", text, pictures=shown) if shown else None


def _calibration(data: ReportData) -> Section | None:
    pictures = tuple(
        draw_reliability(data, name)
        for name in data.strategies[:MOST_STRATEGIES]
        if data.results(name)[0].reliability
    )
    text = (
        "Bars are the accuracy of test rows by confidence, at the end; on the dashed line the two "
        "are equal, and the expected calibration error (ECE) is the mean distance from it. "
        "Confidence is the model's own softmax; cl-graft predict divides by the task's temperature."
    )
    return Section("calibration", "Calibration", (text,), pictures=pictures) if pictures else None


def _again(data: ReportData) -> Section:
    summary = data.summary
    lines = [
        *origin_lines(summary),
        *_schedules(data.runs[0].result),
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
