"""Jobs that localize the tasks of a stream ahead of its runs, all at the same time.

A task's dense run depends on the base, the task's rows, the settings and the seed, and on no other
task. So does its ranking, unless a mask is learned on candidates, whose number grows with the
coordinates that earlier tasks own. On several workers a stream of T tasks thus need not wait for T
dense runs in a row, and a dense run is made once. A ranking that no cache keeps is left to the
runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cl_graft.lab.experiments.comparison.jobs import Job
from cl_graft.lab.experiments.run_setup import apply_fixed_settings
from cl_graft.localization import find_localizer
from cl_graft.localization.grafting_settings import GraftingSettings
from cl_graft.localization.region_search import is_ranking_cached
from cl_graft.strategies.method import Method
from cl_graft.strategies.registry import find_strategy

__all__ = ["localize_ahead", "wait_for_first"]

_DENSE, _RANKED = "independent", "grafting_without_retraining"
"""Strategies that make a dense run, or a dense run and a ranking, and do little more."""

_Kind = tuple[int, str, object, float | str]
"""Seed, strategy, localizer and density, on which such a run depends beside the task."""


def localize_ahead(jobs: Sequence[Job], tasks: int) -> list[Job]:
    """Put a job for the dense run or ranking of each task before the runs that need it.

    One job a task, seed and localizer, whatever the number of strategies. Where two localizers
    start from the same dense run, the second waits for the first, and so do the runs of
    independent fine-tuning.

    Args:
        jobs: Runs and tunings of a comparison.
        tasks: Number of tasks of the stream.

    Returns:
        The jobs, with those that are new before the first that waits for them.
    """
    ahead: dict[_Kind, list[Job]] = {}
    ordered: list[Job] = []
    for job in jobs:
        if job.is_run and job.seed is not None:
            row = find_strategy(job.strategy)
            own = apply_fixed_settings(row, job.config)
            if strategy := _strategy(row, own.grafting):
                kind: _Kind = (job.seed, strategy, "", 0.0)
                if strategy == _RANKED:
                    kind = (job.seed, strategy, own.grafting.localizer, own.grafting.density)
                if kind not in ahead:
                    dense = _dense_runs(ahead, job.seed)
                    ahead[kind] = [
                        replace(
                            job,
                            strategy=strategy,
                            config=own.with_values({"comparison.tune": False}),
                            ahead=task,
                            needs=_names(dense[task : task + 1]),
                        )
                        for task in range(tasks)
                    ]
                    ordered += ahead[kind]
                job = replace(job, needs=job.needs | _names(ahead[kind]))
        ordered.append(job)
    return [
        replace(job, needs=job.needs | _names(_dense_runs(ahead, job.seed)))
        if job.is_run and job.strategy == _DENSE
        else job
        for job in ordered
    ]


def wait_for_first(jobs: Sequence[Job]) -> list[Job]:
    """Let a task that several comparisons localize wait for the first of them.

    If they share its dense run, the others find it in the cache; otherwise they make their own.

    Args:
        jobs: Jobs of comparisons that share a cache.
    """
    first: dict[tuple[str, int | None, str], str] = {}
    ordered: list[Job] = []
    for job in jobs:
        if job.ahead is not None:
            made = first.setdefault(
                (job.strategy, job.seed, job.config.stream.tasks[job.ahead]), job.name
            )
            job = replace(job, needs=job.needs | ({made} - {job.name}))
        ordered.append(job)
    return ordered


def _strategy(method: Method, grafting: GraftingSettings) -> str:
    """Return the strategy whose run makes what a task needs; empty if it needs no dense run."""
    if not method.has_regions:
        return ""
    localizer = find_localizer(grafting.localizer)
    if not localizer.needs_dense_run:
        return ""
    grows = grafting.mode == "prefix" and grafting.avoid_owned
    on_candidates = grafting.mask_candidates is not None and localizer.score_candidates is not None
    is_shared = is_ranking_cached(localizer) and not (grows and on_candidates)
    return _RANKED if is_shared else _DENSE


def _dense_runs(ahead: Mapping[_Kind, list[Job]], seed: int | None) -> list[Job]:
    """Return the first jobs of a seed, which make its dense runs."""
    return next((jobs for kind, jobs in ahead.items() if kind[0] == seed), [])


def _names(jobs: Sequence[Job]) -> frozenset[str]:
    return frozenset(job.name for job in jobs)
