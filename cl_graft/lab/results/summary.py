"""The summary of a comparison: every measure by strategy, and which strategies differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from statistics import mean
from typing import Any

from cl_graft.lab.results.comparison import (
    Budget,
    ComparisonSummary,
    Failure,
    StrategySummary,
    SweptValues,
)
from cl_graft.lab.results.measures import (
    OVER_SEEDS,
    STORED_AS,
    has_one_metric,
    mean_other_score,
    measure,
    other_metrics,
    tasks_by_metric,
)
from cl_graft.lab.results.normalized_scores import NormalizedScores, normalize
from cl_graft.lab.results.run_results import RunResult, command
from cl_graft.lab.results.strategy_statistics import (
    Spread,
    compare_with,
    mean_ece,
    rank_strategies,
    seed_means,
    spread_over_seeds,
)
from cl_graft.metrics.by_metric import LEAST_REFERENCE


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
    """
    first = results[0]
    names = list(dict.fromkeys(result.strategy for result in results))
    scores = None if has_one_metric(first.metrics) else normalize(results)
    strategies = {
        name: _summarize_strategy([r for r in results if r.strategy == name], first, orders, scores)
        for name in names
    }
    if "independent" in strategies and (best := strategies["independent"].average_accuracy.mean):
        for name, row in strategies.items():
            # A share of a correlation near 0 says nothing.
            if best < LEAST_REFERENCE and "accuracy" not in first.metrics.values():
                break
            if (own := row.average_accuracy.mean) is not None:
                strategies[name] = replace(row, of_independent=own / best)
    return ComparisonSummary(
        tasks=first.tasks,
        seeds=sorted({result.seed for result in results}),
        strategies=strategies,
        differences=compare_with(
            "grafting" if "grafting" in names else names[0],
            results,
            measure=_choose_measure(scores),
        ),
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
        metrics=first.metrics,
        normalization=None if scores is None else scores.normalization,
        other_metrics=other_metrics(first),
    )


def _choose_measure(scores: NormalizedScores | None) -> Callable[[RunResult], float | None]:
    """Return the function of a run that gives the number by which strategies are compared."""
    return attrgetter("average_accuracy") if scores is None else scores.average


def _summarize_strategy(
    results: Sequence[RunResult],
    first: RunResult,
    orders: Sequence[Sequence[str]],
    scores: NormalizedScores | None,
) -> StrategySummary:
    """Sum up the runs of a strategy."""

    def spread(value: Callable[[RunResult], float | None]) -> Spread:
        return spread_over_seeds(seed_means(results, value))

    def of_metric(name: str, metric: str | None = None) -> Spread:
        return spread(partial(measure, name=name, metric=metric))

    compared = _choose_measure(scores)
    over_seeds: dict[str, Any] = {STORED_AS[name]: of_metric(name) for name in OVER_SEEDS}
    hashes = [own for result in results for own in result.logit_hashes.values()]
    metrics = {} if scores is None else tasks_by_metric(first.metrics)
    return StrategySummary(
        **over_seeds,
        ece=spread(mean_ece),
        final={
            task: spread(lambda r, task=task: r.R[-1][r.tasks.index(task)]) for task in first.tasks
        },
        routing_accuracy=spread(lambda r: r.routing_accuracy),
        passes_per_row=spread(lambda r: r.passes_per_row),
        bytes_per_task=spread(lambda r: mean(r.bytes.values())),
        most_bytes=spread(lambda r: max(r.bytes.values())),
        seconds=spread(lambda r: r.total_seconds),
        forward_backward=spread(lambda r: r.total_passes.forward_backward),
        forward=spread(lambda r: r.total_passes.forward),
        tuning=results[0].tuning,
        by_order=[
            spread_over_seeds(compared(r) for r in results if r.tasks == list(order)).mean
            for order in orders
        ],
        by_metric={
            metric: {name: of_metric(name, metric) for name in OVER_SEEDS} for metric in metrics
        },
        normalized=spread_over_seeds([] if scores is None else seed_means(results, compared)),
        other_metrics={
            metric: spread(partial(mean_other_score, metric=metric))
            for metric in other_metrics(first)
        },
        same_bits=(sum(own["learned"] == own["end"] for own in hashes), len(hashes)),
        settings=results[0].settings,
    )
