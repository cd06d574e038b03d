"""What a comparison sums up to: every measure over its runs, by strategy, and who differs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from cl_graft.experiments.config import ExperimentConfig
from cl_graft.experiments.exports import (
    comparison_csv,
    comparison_latex,
    draw_frontier,
    draw_ranks,
    draw_sweep,
)
from cl_graft.experiments.report import mean_ece, write_comparison_summary
from cl_graft.experiments.results import Failure, RunResult, command
from cl_graft.experiments.statistics import differences_of, over_seeds, ranks_of
from cl_graft.metrics import (
    accuracy_over_stream,
    backward_transfer_over_stream,
    forward_transfer_over_stream,
)
from cl_graft.store.files import replace_file

__all__ = ["summarize", "write_summary"]

_OVER_STREAM = {
    "accuracy": accuracy_over_stream,
    "backward_transfer": backward_transfer_over_stream,
    "forward_transfer": forward_transfer_over_stream,
}


def summarize(
    config: ExperimentConfig,
    results: Sequence[RunResult],
    failed: Sequence[Failure] = (),
    *,
    started_by: str | None = None,
    budget: Mapping[str, Any] | None = None,
    orders: Sequence[Sequence[str]] = (),
    sweep: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Sum up finished runs: every measure over seeds, by strategy, and which strategies differ.

    Args:
        config: The settings.
        results: The finished runs.
        failed: The others.
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
    reference = strategies.get("independent", {}).get("average_accuracy", {}).get("mean")
    for row in strategies.values():
        own = row["average_accuracy"]["mean"]
        row["of_independent"] = own / reference if reference and own is not None else None
    return {
        "tasks": first.tasks,
        "seeds": [seed for seed in config.seeds if any(r.seed == seed for r in results)],
        "strategies": strategies,
        "differences": differences_of(results, reference=_reference(list(strategies))),
        "ranks": ranks_of(results),
        "orders": [list(order) for order in orders],
        "sweep": dict(sweep or {}),
        "budget": budget,
        "failed": [{"strategy": f.strategy, "seed": f.seed, "error": f.error} for f in failed],
        "config": config.model_dump(mode="json"),
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


def _row(results: Sequence[RunResult], tasks: Sequence[str]) -> dict[str, Any]:
    measures = ("average_accuracy", "backward_transfer", "forward_transfer", "forgetting")
    return {
        **{name: over_seeds(getattr(result, name) for result in results) for name in measures},
        **{
            f"{name}_over_stream": over_seeds(measure(result.R) for result in results)
            for name, measure in _OVER_STREAM.items()
        },
        "ece": over_seeds(mean_ece(result) for result in results),
        "final": {
            task: over_seeds(r.R[-1][r.tasks.index(task)] for r in results) for task in tasks
        },
        "sent_right": over_seeds(result.sent_right for result in results),
        "passes_per_row": over_seeds(result.passes_per_row for result in results),
        "bytes_per_task": over_seeds(mean(result.bytes.values()) for result in results),
        "most_bytes": over_seeds(max(result.bytes.values()) for result in results),
        "seconds": over_seeds(result.total_seconds for result in results),
        "forward_backward": over_seeds(result.total_passes.forward_backward for result in results),
        "forward": over_seeds(result.total_passes.forward for result in results),
        "tuning": results[0].tuning,
    }
