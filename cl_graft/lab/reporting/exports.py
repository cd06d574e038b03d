"""The summary of a comparison for spreadsheets and papers: CSV, LaTeX, figures."""

from __future__ import annotations

import csv
import io
from dataclasses import fields
from pathlib import Path

from cl_graft.lab.figures.memory_frontier import Tradeoff, memory_frontier
from cl_graft.lab.figures.rank_diagram import rank_diagram
from cl_graft.lab.figures.score_curves import Score, score_curves
from cl_graft.lab.reporting.measure_columns import (
    MeasureColumn,
    average_columns,
    measure_columns,
    summary_notes,
)
from cl_graft.lab.results.comparison import ComparisonSummary, StrategySummary
from cl_graft.lab.results.formatting import latex_table
from cl_graft.lab.results.measures import measure_name, tasks_by_metric
from cl_graft.lab.results.run_results import find_method_name
from cl_graft.lab.results.strategy_statistics import Ranks, Spread
from cl_graft.metrics.figure_style import png
from cl_graft.runtime.escaping import for_latex
from cl_graft.storage.files import replace_file
from cl_graft.strategies.registry import STRATEGIES

__all__ = [
    "comparison_csv",
    "comparison_latex",
    "draw_frontier",
    "draw_ranks",
    "draw_sweep",
    "find_tradeoffs",
]

_MEASURES = (
    "average_accuracy",
    "backward_transfer",
    "forward_transfer",
    "forgetting",
    "ece",
    "accuracy_over_stream",
    "backward_transfer_over_stream",
    "forward_transfer_over_stream",
    "routing_accuracy",
)
_COSTS = (
    "bytes_per_task",
    "most_bytes",
    "seconds",
    "forward_backward",
    "forward",
    "passes_per_row",
)
_WIDE = 5
"""Ratio of the largest to the smallest value from which the axis of a sweep is logarithmic."""


def comparison_csv(summary: ComparisonSummary) -> str:
    """Write one row a strategy and measure: mean, sd, ends of the 95 % interval, number of seeds.

    Args:
        summary: Summary of the comparison; scores are fractions.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["strategy", "measure", "mean", "sd", "low", "high", "n"])
    for name, row in summary.strategies.items():
        stated = _name_measures(summary, row) | {cost: getattr(row, cost) for cost in _COSTS}
        stated |= {f"final {task}": spread for task, spread in row.final.items()}
        stated |= {f"other {metric}": spread for metric, spread in row.other_metrics.items()}
        for measure, spread in stated.items():
            low, high = spread.interval or (None, None)
            writer.writerow([name, measure, spread.mean, spread.sd, low, high, spread.n])
    return text.getvalue()


def comparison_latex(summary: ComparisonSummary) -> str:
    """Write a table for LaTeX with booktabs, mean and standard deviation in points.

    The best value of a column is bold; names are escaped, and stay what they are. What an average
    is a mean of stands in comments above the table, where tasks have several metrics.

    Args:
        summary: Summary of the comparison.
    """
    rows = summary.strategies.items()
    columns = [
        *(MeasureColumn(t, {name: row.final[t] for name, row in rows}) for t in summary.tasks),
        *average_columns(summary),
        *measure_columns(summary, "forgetting"),
    ]
    best = [_best([*one.spreads.values()], lowest=one.lower_is_better) for one in columns]
    table = [
        [for_latex(name)]
        + [_cell(one.spreads[name], top) for one, top in zip(columns, best, strict=True)]
        for name in summary.strategies
    ]
    titles = ["average" if one.title == "average accuracy" else one.title for one in columns]
    notes = [f"% {for_latex(note)}\n" for note in summary_notes(summary)]
    return "".join(notes) + latex_table(["strategy", *map(for_latex, titles)], table)


def draw_ranks(ranks: Ranks, folder: Path) -> None:
    """Write `ranks.png`: the average ranks of the strategies, and which cannot be told apart.

    Args:
        ranks: Ranks of the summary.
        folder: The comparison's.
    """
    figure = rank_diagram(ranks.ranks, ranks.critical_difference)
    replace_file(folder / "ranks.png", png(figure))


def draw_frontier(summary: ComparisonSummary, folder: Path) -> None:
    """Write `frontier.png`: what strategies are compared by against the bytes that a task adds.

    Args:
        summary: Summary of the comparison.
        folder: The comparison's.
    """
    if points := find_tradeoffs(summary):
        title = " → ".join(summary.tasks)
        figure = memory_frontier(points, title=title, measure=summary.overall)
        replace_file(folder / "frontier.png", png(figure))


def draw_sweep(summary: ComparisonSummary, folder: Path) -> None:
    """Write ``sweep-NAME.png`` for each setting that was swept: its values and what they reach.

    It shows the average accuracy at the end, or the normalized average where tasks have several
    metrics.

    Args:
        summary: Summary of the comparison.
        folder: The comparison's.
    """
    rows = {
        name: (one, spread.mean, spread.sd or 0.0)
        for name, one in summary.sweep.items()
        if name in summary.strategies
        and (spread := summary.strategies[name].overall).mean is not None
    }
    names = dict.fromkeys(name for one, *_ in rows.values() for name in one.values)
    for name in names:
        swept = [one.values[name] for one, *_ in rows.values() if name in one.values]
        numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in swept)
        scores: list[Score] = []
        for label, (one, mean, sd) in rows.items():
            others = {key: value for key, value in one.values.items() if key != name}
            if numbers and name in one.values:
                said = (f"{key}={value}" for key, value in others.items())
                curve, x = " ".join([one.strategy, *said]), float(one.values[name])
            elif name in one.values or not others:
                curve, x = label, None
            else:
                continue  # a value of another setting
            scores.append(Score("", curve, x, 100 * mean, 100 * sd))
        wide = numbers and min(swept) > 0 and max(swept) >= _WIDE * min(swept)
        figure = score_curves(
            scores,
            title=", ".join(summary.tasks),
            measure=f"{summary.overall} at the end (%)",
            axis=name,
            logarithmic=wide,
        )
        replace_file(folder / f"sweep-{name}.png", png(figure))


def find_tradeoffs(summary: ComparisonSummary) -> dict[str, Tradeoff]:
    """Return what each strategy reaches and holds, from the summary of a comparison."""
    return {
        name: Tradeoff(
            row.overall.mean,
            row.overall.sd,
            row.bytes_per_task.mean or 0.0,
            forgets=any(one.forgetting.mean for one in (row, *row.by_metric.values())),
            # Behind a name there may stand where it was run, or with what: "ewc (first)".
            bound=(found := STRATEGIES.get(find_method_name(name))) is not None and found.is_bound,
        )
        for name, row in summary.strategies.items()
        if row.overall.mean is not None
    }


def _name_measures(summary: ComparisonSummary, row: StrategySummary) -> dict[str, Spread]:
    """Return the measures of a strategy by their names in files."""
    if row.by_metric:
        found = {
            measure_name(one.name, metric, alone=False): getattr(own, one.name)
            for metric, own in row.by_metric.items()
            for one in fields(own)
        }
        found["normalized_average"] = row.normalized
        return found | {"ece": row.ece, "routing_accuracy": row.routing_accuracy}
    metric = next(iter(tasks_by_metric(summary.metrics)), "accuracy")
    named = {
        "average_accuracy": measure_name("average", metric, alone=True),
        "accuracy_over_stream": measure_name("average_over_stream", metric, alone=True),
    }
    return {named.get(name, name): getattr(row, name) for name in _MEASURES}


def _best(column: list[Spread], *, lowest: bool) -> float | None:
    known = [spread.mean for spread in column if spread.mean is not None]
    return (min if lowest else max)(known, default=None)


def _cell(spread: Spread, best: float | None) -> str:
    if spread.mean is None:
        return "--"
    text = f"{100 * spread.mean:z.1f}"
    bold = rf"\mathbf{{{text}}}" if spread.mean == best else text
    return f"${bold}$" if spread.sd is None else rf"${bold} \pm {100 * spread.sd:.1f}$"
