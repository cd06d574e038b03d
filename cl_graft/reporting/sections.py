"""The sections of a report: what is shown, in which order, and in which words."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from cl_graft.figures.heatmaps import anatomy_panels, overlap_heatmap, place_names, r_matrix_heatmap
from cl_graft.figures.memory_frontier import memory_frontier
from cl_graft.figures.rank_diagram import rank_diagram
from cl_graft.figures.reliability import reliability_panels
from cl_graft.figures.stream_curves import cost_bars, mean_known, stream_curves, write_plain_ticks
from cl_graft.figures.style import MOST_PANELS
from cl_graft.metrics.calibration import ReliabilityBins
from cl_graft.metrics.statistics import LEAST_SAMPLES
from cl_graft.reporting import tables
from cl_graft.reporting.exports import tradeoffs_of
from cl_graft.reporting.markdown import NOTHING_SAID
from cl_graft.reporting.report_data import ReportData
from cl_graft.reporting.tables import Cell, Table
from cl_graft.results import stream_measures
from cl_graft.results.data_report import data_lines
from cl_graft.results.formatting import points
from cl_graft.results.run_results import RunResult

__all__ = ["Picture", "Section", "sections_of"]

_HALF = 6.6
"""Inches of half the page's width."""
_MOST_MATRICES = 16
_MOST_IN_WORDS = 24


@dataclass(frozen=True)
class Picture:
    """A figure, and the same in words.

    Attributes:
        name: Of its files: letters, digits and dashes.
        title: What it shows, in a sentence; screen readers say it.
        figure: The figure.
        table: Its numbers; None where they stand elsewhere.
    """

    name: str
    title: str
    figure: Figure
    table: Table | None = None

    @property
    def wide(self) -> bool:
        """Whether it needs the page's whole width."""
        return bool(self.figure.get_figwidth() > _HALF)


@dataclass(frozen=True)
class Section:
    """A section of the page.

    Attributes:
        name: Its anchor.
        title: Its heading.
        text: Paragraphs before its tables and pictures.
        tables: Its tables, by the name of their file.
        pictures: Its pictures.
        lines: A list after them.
        code: Commands after that, by what they do.
    """

    name: str
    title: str
    text: tuple[str, ...] = ()
    tables: tuple[tuple[str, Table], ...] = ()
    pictures: tuple[Picture, ...] = ()
    lines: tuple[str, ...] = ()
    code: tuple[tuple[str, str], ...] = ()


def sections_of(data: ReportData) -> list[Section]:
    """Return the sections of which there is something to say, in their order."""
    made = (
        _comparison(data),
        _matrices(data),
        _along(data),
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


def _comparison(data: ReportData) -> Section:
    summary, names = data.summary, data.strategies
    pictures: list[Picture] = []
    if summary.ranks:
        found = summary.ranks
        pictures.append(
            Picture(
                "ranks",
                "Average rank of each strategy over the tasks, by its mean score over seeds; a bar "
                "joins those that cannot be told apart",
                rank_diagram(found.ranks, found.critical_difference),
                Table(
                    "Average ranks",
                    ("strategy", "rank"),
                    tuple((Cell(n), Cell(f"{r:.2f}", r)) for n, r in found.ranks.items()),
                ),
            )
        )
    text = [
        f"{len(names)} {'strategy' if len(names) == 1 else 'strategies'}, "
        f"{len(summary.tasks)} tasks, {len(data.runs)} runs. The best value of a column is "
        "bold and marked ★. A heading sorts the table."
    ]
    text.append(_metrics(data.runs[0].result))
    if max(row.average_accuracy.n for row in summary.strategies.values()) < LEAST_SAMPLES:
        text.append(NOTHING_SAID)
    lines = [
        f"Not finished: {one.strategy}, seed {one.seed}: {one.error}" for one in summary.failed
    ]
    return Section(
        "comparison",
        "Comparison",
        tuple(text),
        (("comparison", tables.comparison(data)),),
        tuple(pictures),
        tuple(lines),
    )


def _matrices(data: ReportData) -> Section:
    shown, pictures = data.strategies[:_MOST_MATRICES], []
    for name in shown:
        results = _one_order(data.results(name))
        R, tasks = _mean_matrix([result.R for result in results]), results[0].tasks
        over = f", mean of {len(results)} runs" if len(results) > 1 else ""
        title = f"{name}: score on each task (columns) after learning each (rows){over}"
        words = None
        if len(tasks) <= _MOST_IN_WORDS:
            words = tables.matrix(R, tasks, caption=title, corner="after")
        figure = r_matrix_heatmap(R, tasks, title=f"R of {name}", score_name="score")
        pictures.append(Picture(f"R-{_file(name)}", title, figure, words))
    text = "R[i, j] is the score on task j after learning task i, in points."
    if data.summary.orders:
        text += " Shown is the first of the orders that were compared."
    if len(shown) < len(data.strategies):
        text += f" Shown are the first {len(shown)} strategies; results.json holds the others."
    return Section("matrices", "Scores after each task", (text,), pictures=tuple(pictures))


def _along(data: ReportData) -> Section:
    accuracy = _curve(
        data, "accuracy", "Average accuracy over the tasks learned so far, after each",
        "average accuracy (%)", stream_measures.accuracy_after,
    )  # fmt: skip
    lost = _curve(
        data, "forgetting", "Forgetting of the tasks learned so far, after each",
        "forgetting (points)", stream_measures.forgetting_after,
    )  # fmt: skip
    return Section("stream", "Along the stream", pictures=tuple(p for p in (accuracy, lost) if p))


def _calibration(data: ReportData) -> Section:
    pictures = [
        _curve(
            data, "ece", "Calibration error, mean over the tasks learned so far, after each",
            "ECE (points)", stream_measures.ece_after,
        )
    ]  # fmt: skip
    bare: list[str] = []
    for name in data.strategies[:_MOST_MATRICES]:
        first = data.results(name)[0]
        if not first.reliability:
            bare.append(name)
            continue
        title = f"{name}: accuracy against confidence on each task's test rows, at the end"
        if len(data.results(name)) > 1:
            title += f", seed {first.seed}"
        bins = {task: ReliabilityBins.from_lists(b) for task, b in first.reliability.items()}
        figure = reliability_panels(bins, title=f"Reliability of {name}")
        pictures.append(Picture(f"reliability-{_file(name)}", title, figure, _bins(first)))
    text = (
        "The expected calibration error says how far confidence is from accuracy. Here confidence "
        "is the model's own softmax; cl-graft predict divides by the task's temperature.",
    )
    lines = (f"Without bins of confidence (an earlier version ran them): {', '.join(bare)}.",)
    return Section(
        "calibration",
        "Calibration",
        text,
        pictures=tuple(p for p in pictures if p),
        lines=lines if bare else (),
    )


def _anatomy(data: ReportData) -> Section | None:
    pictures: list[Picture] = []
    for name, found in data.anatomies.items():
        title = f"{name}: share of the weights of each layer and module in each task's region"
        pictures.append(
            Picture(
                f"anatomy-{_file(name)}",
                title,
                anatomy_panels(found, title=f"Regions of {name}"),
                _by_layer(found, title),
            )
        )
    if not pictures:
        return None
    text = "Where in the model the regions lie: layers from the input up, modules within a layer."
    tasks = max(len(found) for found in data.anatomies.values())
    if tasks > MOST_PANELS:
        text += f" Shown are the first {MOST_PANELS} tasks."
    return Section("anatomy", "Anatomy of the regions", (text,), pictures=tuple(pictures))


def _overlap(data: ReportData) -> Section | None:
    pictures: list[Picture] = []
    for name in data.strategies:
        first = data.results(name)[0]
        if not first.overlap or len(first.tasks) < 2:
            continue
        title = f"{name}: share of region j (columns) that region i (rows) holds, too"
        words = None
        if len(first.tasks) <= _MOST_IN_WORDS:
            words = tables.matrix(first.overlap, first.tasks, caption=title, corner="region i")
        figure = overlap_heatmap(first.overlap, first.tasks, title=f"Overlap of {name}")
        pictures.append(Picture(f"overlap-{_file(name)}", title, figure, words))
    if not pictures:
        return None
    text = (
        "|region i ∩ region j| / |region j|, in %. With avoid_owned (the default) a region is "
        "chosen among the weights that no earlier task owns, so nothing overlaps.",
    )
    return Section("overlap", "Overlap between tasks", text, pictures=tuple(pictures))


def _costs(data: ReportData) -> Section:
    rows = data.summary.strategies
    kinds = (
        (
            "bytes_per_task",
            "bytes-a-task",
            "What a task adds to what must be stored",
            "bytes",
            True,
        ),
        ("forward_backward", "passes", "Rows that went forward and backward", "rows", False),
        ("seconds", "seconds", "Wall time of all phases", "seconds", False),
    )
    pictures = [
        Picture(
            f"cost-{name}",
            title,
            cost_bars(
                {strategy: getattr(row, key).mean for strategy, row in rows.items()},
                title=title,
                unit=unit,
                logarithmic=logarithmic,
            ),
        )
        for key, name, title, unit, logarithmic in kinds
    ]
    if points := tradeoffs_of(data.summary):
        title = "Average accuracy against the bytes that a task adds"
        figure = memory_frontier(points, title=title)
        write_plain_ticks(figure.axes[0])
        pictures.insert(0, Picture("frontier", title, figure))
    text = (
        "Seconds are those of all phases, also where the cache answered one. The numbers of the "
        "figures are in the table.",
    )
    made = (("costs", tables.costs(data)),)
    return Section("costs", "Costs", text, made, tuple(pictures))


def _again(data: ReportData) -> Section:
    summary = data.summary
    model, machine = summary.model, summary.machine
    lines = [
        f"model: {model['name']} ({model['family']}, {model['graftable']:,} graftable weights, "
        f"fingerprint {model['fingerprint'][:12]}…)",
        *_schedules(data.runs[0].result),
        *data_lines(summary.data),
        f"machine: {_pairs(machine)}",
        f"versions: {_pairs(summary.versions)}",
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


def _metrics(result: RunResult) -> str:
    """Say by which metric tasks are scored, those with the same metric together."""
    tasks: dict[str, list[str]] = {}
    for task, metric in result.metrics.items():
        tasks.setdefault(metric, []).append(task)
    if len(tasks) == 1:
        return f"Tasks are scored by {next(iter(tasks))}."
    parts = (f"{metric} of {', '.join(own)}" for metric, own in tasks.items())
    return f"Scores: {'; '.join(parts)}."


def _schedules(result: RunResult) -> list[str]:
    """Say how tasks were trained, those with the same schedule in one line."""
    tasks: dict[str, list[str]] = {}
    for task, s in result.schedules.items():
        said = f"{s['steps']} steps of {s['batch_size']} rows at lr {s['lr']:g}"
        tasks.setdefault(said, []).append(task)
    if len(tasks) == 1:
        return [f"each task: {said}" for said in tasks]
    return [f"{', '.join(names)}: {said}" for said, names in tasks.items()]


def _curve(data: ReportData, name: str, title: str, measure: str, of: Any) -> Picture | None:
    """Draw a measure along the stream for the strategies that have one, the best ones named."""
    found = {strategy: of(data.results(strategy)) for strategy in data.strategies}
    found = {s: curve for s, curve in found.items() if any(v is not None for v in curve.middle)}
    if not found:
        return None
    tasks = data.summary.tasks
    if data.summary.orders:
        tasks = [f"task {place + 1}" for place in range(len(tasks))]
    cells = tuple(
        (Cell(strategy), *(Cell(points(v), v) for v in curve.middle))
        for strategy, curve in found.items()
    )
    words = None
    if len(tasks) <= _MOST_IN_WORDS:
        words = Table(f"{title}, in points", ("strategy", *tasks), cells)
    figure = stream_curves(found, tasks, title=title, measure=measure)
    return Picture(f"curve-{name}", title, figure, words)


def _bins(result: RunResult) -> Table:
    rows = []
    for task, bins in list(result.reliability.items())[:MOST_PANELS]:
        size = len(bins["counts"])
        for place, count in enumerate(bins["counts"]):
            if count:
                confidence, accuracy = bins["confidence"][place], bins["accuracy"][place]
                rows.append(
                    (
                        Cell(task),
                        Cell(f"{place / size:.2f} to {(place + 1) / size:.2f}", place),
                        Cell(f"{count:,.0f}", count),
                        Cell(points(confidence), confidence),
                        Cell(points(accuracy), accuracy),
                    )
                )
    head = ("task", "bin of confidence", "rows", "confidence (%)", "accuracy (%)")
    return Table(f"Bins of confidence of {result.strategy}", head, tuple(rows))


def _by_layer(found: Any, title: str) -> Table:
    """Say in words how much of each region lies in each layer."""
    _, layers = place_names(next(iter(found.values())))
    rows = tuple(
        (Cell(task), *(Cell(points(share), share) for share in own.by_layer.tolist()))
        for task, own in found.items()
    )
    return Table(f"{title}: share of the region in each layer, in %", ("task", *layers), rows)


def _one_order(results: Sequence[RunResult]) -> list[RunResult]:
    return [result for result in results if result.tasks == results[0].tasks]


def _mean_matrix(found: Sequence[Any]) -> list[list[float | None]]:
    size = range(len(found[0]))
    return [[mean_known([matrix[i][j] for matrix in found]) for j in size] for i in size]


def _pairs(values: Any) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _file(name: str) -> str:
    return "".join(c if c.isalnum() and c.isascii() else "-" for c in name).strip("-")
