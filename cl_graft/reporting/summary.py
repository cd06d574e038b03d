"""What a comparison sums up to: every measure over its runs, by strategy, and who differs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
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
from cl_graft.reporting.markdown import mean_ece, write_comparison_summary
from cl_graft.results.run_results import Failure, RunResult, command
from cl_graft.results.statistics import differences_of, over_seeds, ranks_of, seed_means
from cl_graft.storage.files import replace_file

__all__ = ["summarize", "write_summary"]


def summarize(
    results: Sequence[RunResult],
    failed: Sequence[Failure] = (),
    *,
    config: Mapping[str, Any],
    started_by: str | None = None,
    budget: Mapping[str, Any] | None = None,
    orders: Sequence[Sequence[str]] = (),
    sweep: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Sum up finished runs: every measure over seeds, by strategy, and which strategies differ.

    Of several orders, a seed's value is the mean over them: runs of one seed are one sample.

    Args:
        results: Finished runs.
        failed: Runs that failed.
        config: Settings of the runs, as JSON.
        started_by: The command to note; None means this process's.
        budget: What the strategies were sized to, their sizes, and why others do not fit.
        orders: The orders of the tasks, where there are several.
        sweep: Of a row of the table, its strategy and the values that were set for it.
    """
    first = results[0]
    strategies = {
        name: _row([result for result in results if result.strategy == name], first.tasks)
        for name in dict.fromkeys(result.strategy for result in results)
    }
    for name, row in strategies.items():
        row["by_order"] = _by_order([r for r in results if r.strategy == name], orders)
    reference = strategies.get("independent", {}).get("average_accuracy", {}).get("mean")
    for row in strategies.values():
        own = row["average_accuracy"]["mean"]
        row["of_independent"] = own / reference if reference and own is not None else None
    return {
        "tasks": first.tasks,
        "seeds": sorted({result.seed for result in results}),
        "strategies": strategies,
        "differences": differences_of(results, reference=_reference(list(strategies))),
        "ranks": ranks_of(results),
        "orders": [list(order) for order in orders],
        "sweep": dict(sweep or {}),
        "budget": budget,
        "failed": [{"strategy": f.strategy, "seed": f.seed, "error": f.error} for f in failed],
        "config": dict(config),
        "data": first.data,
        "model": first.model,
        "versions": first.versions,
        "machine": first.machine,
        "command": started_by or command(),
    }


def write_summary(summary: Mapping[str, Any], out: Path, *, whole: bool) -> None:
    """Write a summary in all its forms.

    Args:
        summary: What `summarize` returned.
        out: The folder.
        whole: Whether all cells are in it: pictures are drawn then.
    """
    replace_file(out / "summary.json", f"{json.dumps(summary, indent=1)}\n".encode())
    replace_file(out / "summary.csv", comparison_csv(summary).encode())
    replace_file(out / "summary.tex", comparison_latex(summary).encode())
    write_comparison_summary(summary, out)
    if whole:
        draw_frontier(summary, out)
        if summary["ranks"]:
            draw_ranks(summary["ranks"], out)
        if summary["sweep"]:
            draw_sweep(summary, out)


def _reference(names: Sequence[str]) -> str:
    """Choose what the other strategies are compared with."""
    return "grafting" if "grafting" in names else names[0]


def _by_order(results: Sequence[RunResult], orders: Sequence[Sequence[str]]) -> list[float | None]:
    """Return a strategy's average accuracy on each order, the mean over seeds."""
    return [
        over_seeds(r.average_accuracy for r in results if r.tasks == list(order))["mean"]
        for order in orders
    ]


def _row(results: Sequence[RunResult], tasks: Sequence[str]) -> dict[str, Any]:
    def stated(measure: Callable[[RunResult], float | None]) -> dict[str, Any]:
        return over_seeds(seed_means(results, measure))

    return {
        "average_accuracy": stated(lambda r: r.average_accuracy),
        "backward_transfer": stated(lambda r: r.backward_transfer),
        "forward_transfer": stated(lambda r: r.forward_transfer),
        "forgetting": stated(lambda r: r.forgetting),
        "accuracy_over_stream": stated(lambda r: accuracy_over_stream(r.R)),
        "backward_transfer_over_stream": stated(lambda r: backward_transfer_over_stream(r.R)),
        "forward_transfer_over_stream": stated(lambda r: forward_transfer_over_stream(r.R)),
        "ece": stated(mean_ece),
        "final": {task: stated(partial(_at_the_end, task=task)) for task in tasks},
        "sent_right": stated(lambda r: r.sent_right),
        "passes_per_row": stated(lambda r: r.passes_per_row),
        "bytes_per_task": stated(lambda r: mean(r.bytes.values())),
        "most_bytes": stated(lambda r: max(r.bytes.values())),
        "seconds": stated(lambda r: r.total_seconds),
        "forward_backward": stated(lambda r: r.total_passes.forward_backward),
        "forward": stated(lambda r: r.total_passes.forward),
        "tuning": results[0].tuning,
    }


def _at_the_end(result: RunResult, *, task: str) -> float | None:
    return result.R[-1][result.tasks.index(task)]
