"""The summary of a comparison: every measure by strategy, and which strategies differ."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

from cl_graft.metrics import (
    accuracy_over_stream,
    backward_transfer_over_stream,
    forward_transfer_over_stream,
)
from cl_graft.reporting.exports import (
    comparison_csv,
    comparison_latex,
    draw_frontier,
    draw_ranks,
    draw_sweep,
)
from cl_graft.reporting.markdown import write_comparison_summary
from cl_graft.results.comparison import (
    Budget,
    ComparisonSummary,
    Failure,
    StrategySummary,
    SweptValues,
)
from cl_graft.results.run_results import RunResult, command
from cl_graft.results.strategy_statistics import (
    Spread,
    compare_with,
    mean_ece,
    rank_strategies,
    seed_means,
    spread_over_seeds,
)
from cl_graft.storage.files import replace_file

__all__ = ["summarize", "write_summary"]


def summarize(
    results: Sequence[RunResult],
    failed: Sequence[Failure] = (),
    *,
    config: Mapping[str, Any],
    started_by: str | None = None,
    budget: Budget | None = None,
    orders: Sequence[Sequence[str]] = (),
    sweep: Mapping[str, SweptValues] | None = None,
) -> ComparisonSummary:
    """Sum up finished runs: every measure over seeds, by strategy, and which strategies differ.

    Of several orders, a seed's value is the mean over them: runs of one seed are one sample.

    Args:
        results: Finished runs.
        failed: Runs that failed.
        config: Settings of the runs, as JSON.
        started_by: Command line to record; None means this process's.
        budget: Bytes a task that the strategies were sized to; None if they were not.
        orders: Orders of the tasks, where there are several.
        sweep: Strategy and swept values of each row of the table.
    """
    first = results[0]
    names = list(dict.fromkeys(result.strategy for result in results))
    strategies = {
        name: _summarize_strategy([r for r in results if r.strategy == name], first.tasks, orders)
        for name in names
    }
    if "independent" in strategies and (best := strategies["independent"].average_accuracy.mean):
        for name, row in strategies.items():
            if (own := row.average_accuracy.mean) is not None:
                strategies[name] = replace(row, of_independent=own / best)
    return ComparisonSummary(
        tasks=first.tasks,
        seeds=sorted({result.seed for result in results}),
        strategies=strategies,
        differences=compare_with("grafting" if "grafting" in names else names[0], results),
        ranks=rank_strategies(results),
        orders=[list(order) for order in orders],
        sweep=dict(sweep or {}),
        budget=budget,
        failed=list(failed),
        config=dict(config),
        data=first.data,
        model=first.model,
        versions=first.versions,
        machine=first.machine,
        command=started_by or command(),
    )


def write_summary(summary: ComparisonSummary, out: Path, *, whole: bool) -> None:
    """Write a summary as JSON, CSV, LaTeX and Markdown, and its figures.

    Args:
        summary: What `summarize` returned.
        out: The folder.
        whole: Whether all runs are in it: figures are drawn then.
    """
    replace_file(out / "summary.json", f"{json.dumps(asdict(summary), indent=1)}\n".encode())
    replace_file(out / "summary.csv", comparison_csv(summary).encode())
    replace_file(out / "summary.tex", comparison_latex(summary).encode())
    write_comparison_summary(summary, out)
    if whole:
        draw_frontier(summary, out)
        if summary.ranks:
            draw_ranks(summary.ranks, out)
        if summary.sweep:
            draw_sweep(summary, out)


def _summarize_strategy(
    results: Sequence[RunResult], tasks: Sequence[str], orders: Sequence[Sequence[str]]
) -> StrategySummary:
    def spread(measure: Callable[[RunResult], float | None]) -> Spread:
        return spread_over_seeds(seed_means(results, measure))

    return StrategySummary(
        average_accuracy=spread(lambda r: r.average_accuracy),
        backward_transfer=spread(lambda r: r.backward_transfer),
        forward_transfer=spread(lambda r: r.forward_transfer),
        forgetting=spread(lambda r: r.forgetting),
        accuracy_over_stream=spread(lambda r: accuracy_over_stream(r.R)),
        backward_transfer_over_stream=spread(lambda r: backward_transfer_over_stream(r.R)),
        forward_transfer_over_stream=spread(lambda r: forward_transfer_over_stream(r.R)),
        ece=spread(mean_ece),
        final={task: spread(partial(_final_score, task=task)) for task in tasks},
        sent_right=spread(lambda r: r.sent_right),
        passes_per_row=spread(lambda r: r.passes_per_row),
        bytes_per_task=spread(lambda r: mean(r.bytes.values())),
        most_bytes=spread(lambda r: max(r.bytes.values())),
        seconds=spread(lambda r: r.total_seconds),
        forward_backward=spread(lambda r: r.total_passes.forward_backward),
        forward=spread(lambda r: r.total_passes.forward),
        tuning=results[0].tuning,
        by_order=[
            spread_over_seeds(r.average_accuracy for r in results if r.tasks == list(order)).mean
            for order in orders
        ],
    )


def _final_score(result: RunResult, *, task: str) -> float | None:
    return result.R[-1][result.tasks.index(task)]
