"""Summaries as files: `summary.md` of a run; of a comparison JSON, CSV and LaTeX, too."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from cl_graft.lab.reporting.summary_sections import Section, origin_lines, summary_sections
from cl_graft.lab.results import summary_tables
from cl_graft.lab.results.comparison import ComparisonSummary, StrategySummary
from cl_graft.lab.results.measures import (
    MEASURES,
    OVER_SEEDS,
    measure,
    measure_name,
    measure_title,
    metrics_text,
    tasks_by_metric,
)
from cl_graft.lab.results.run_results import RunResult
from cl_graft.lab.results.strategy_statistics import Spread, mean_ece
from cl_graft.lab.results.tables import (
    Cell,
    Table,
    make_matrix,
    model_text,
    pairs_text,
    points,
    schedule_text,
)
from cl_graft.runtime.escaping import for_markdown, for_markdown_code
from cl_graft.settings.data_report import data_lines
from cl_graft.storage.files import replace_file
from cl_graft.training.learnable_task import Passes, total_passes

_COSTS = (
    "bytes_per_task",
    "most_bytes",
    "seconds",
    "forward_backward",
    "forward",
    "passes_per_row",
)


def write_run_summary(result: RunResult, folder: Path) -> None:
    """Write `summary.md` into a run's folder."""
    learned = result.tasks[: len(result.R)]
    state = f" (unfinished: {len(learned)} of {len(result.tasks)} tasks learned)"
    lines = [
        f"# {for_markdown(result.strategy)}, seed {result.seed}{'' if result.complete else state}"
    ]
    shown = [(result.R, "Score on each task (columns) after learning each (rows), in %:")]
    if result.routed is not None:
        said = (
            "Of each task's texts, the share that was sent to it, in %; an answer is one of the "
            "labels of all tasks learned so far:"
        )
        shown.append((result.routed, said))
    for matrix, said in shown:
        table = make_matrix(matrix, learned, caption=said, corner="after")
        lines += ["", said, "", *table.markdown()]
    groups = tasks_by_metric(result.metrics)
    counts = {metric: None if len(groups) == 1 else len(part) for metric, part in groups.items()}
    measures = [
        (measure_title(name, metric, tasks=counts[metric]), measure(result, name, metric))
        for name in MEASURES
        for metric in groups
    ]
    measures.append(("ECE, mean over tasks", mean_ece(result)))
    rows = tuple((Cell(title), Cell(points(value), value or 0.0)) for title, value in measures)
    lines += ["", *Table("", ("measure", "in points"), rows).markdown()]
    lines += [] if len(groups) == 1 else ["", for_markdown(metrics_text(result.metrics))]
    lines += ["", *_task_table(result).markdown(), ""]
    schedules = [f"{name}: {schedule_text(part)}" for name, part in result.schedules.items()]
    texts = [model_text(result.model), f"training: {'; '.join(schedules)}"]
    texts += data_lines(result.data)
    if result.processes > 1:
        texts.append(
            f"processes: {result.processes}, as the run was interrupted; seconds are those of the "
            "process that finished a phase"
        )
    texts += [f"machine: {pairs_text(result.machine)}", f"versions: {pairs_text(result.versions)}"]
    _write([*lines, *_items(texts), f"- command: {for_markdown_code(result.command)}"], folder)


def write_summary(summary: ComparisonSummary, out: Path) -> None:
    """Write the summary of a comparison as JSON, CSV, LaTeX and Markdown."""
    replace_file(out / "summary.json", f"{json.dumps(asdict(summary), indent=1)}\n".encode())
    replace_file(out / "summary.csv", comparison_csv(summary).encode())
    notes = "".join(f"% {note}\n" for note in summary_tables.summary_notes(summary))
    text = notes + summary_tables.scores(summary).latex()
    replace_file(out / "summary.tex", text.encode())
    title = " → ".join(summary.tasks)
    if summary.orders:
        title = f"{', '.join(summary.tasks)} in {len(summary.orders)} orders"
    lines = [f"# {for_markdown(title)}"]
    for section in summary_sections(summary):
        lines += ["", f"## {for_markdown(section.title)}", *_show(section)]
    origin = _items(origin_lines(summary))
    _write([*lines, "", *origin, f"- command: {for_markdown_code(summary.command)}"], out)


def comparison_csv(summary: ComparisonSummary) -> str:
    """Write a row a strategy and measure, in fractions: mean, sd, interval, number of seeds."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["strategy", "measure", "mean", "sd", "low", "high", "n"])
    for name, row in summary.strategies.items():
        stated = _name_measures(summary, row) | {cost: getattr(row, cost) for cost in _COSTS}
        stated |= {f"final {task}": spread for task, spread in row.final.items()}
        stated |= {f"other {metric}": spread for metric, spread in row.other_metrics.items()}
        for key, spread in stated.items():
            low, high = spread.interval or (None, None)
            writer.writerow([name, key, spread.mean, spread.sd, low, high, spread.n])
    return text.getvalue()


def _name_measures(summary: ComparisonSummary, row: StrategySummary) -> dict[str, Spread]:
    named = {
        measure_name(name, metric, alone=not row.by_metric): row.measure(name, metric)
        for metric in row.by_metric or list(tasks_by_metric(summary.metrics)) or ["accuracy"]
        for name in OVER_SEEDS
    }
    named |= {"normalized_average": row.normalized} if row.by_metric else {}
    return named | {"ece": row.ece, "routing_accuracy": row.routing_accuracy}


def _task_table(result: RunResult) -> Table:
    head = (
        "task", "score", "ECE", "region", "lost to earlier tasks", "stored", "seconds",
        "rows differentiated", "rows answered", "same logits at the end",
    )  # fmt: skip
    rows = tuple(_task_row(result, j) for j in range(len(result.R)))
    return Table("", head, rows)


def _task_row(result: RunResult, j: int) -> tuple[Cell, ...]:
    name = result.tasks[j]
    region = result.coordinates.get(name)
    hashes = result.logit_hashes[name]
    passes = total_passes(Passes(**phase) for phase in result.passes.get(name, {}).values())
    scores = {result.metrics[name]: result.R[-1][j], **result.other_scores.get(name, {})}
    texts = (
        name,
        ", ".join(f"{points(score)} ({metric})" for metric, score in scores.items()),
        points(result.ece[-1][j]),
        f"{region['claimed']:,.0f} ({region['density']:.3%})" if region else "–",
        f"{region['lost']:.1%}" if region else "–",
        f"{result.bytes[name]:,} bytes",
        f"{sum(result.find_seconds(name).values()):.0f}",
        f"{passes.forward_backward:,}",
        f"{passes.forward:,}",
        "yes" if hashes["learned"] == hashes["end"] else "no",
    )
    return tuple(map(Cell, texts))


def _show(section: Section) -> list[str]:
    lines: list[str] = []
    for text in section.text:
        lines += ["", for_markdown(text)]
    for _, table in section.tables:
        lines += ["", f"{for_markdown(table.caption)}:", "", *table.markdown()]
    return [*lines, "", *_items(section.lines)] if section.lines else lines


def _items(texts: Sequence[str]) -> list[str]:
    return [f"- {for_markdown(text)}" for text in texts]


def _write(lines: Sequence[str], folder: Path) -> None:
    replace_file(folder / "summary.md", ("\n".join(lines) + "\n").encode())
