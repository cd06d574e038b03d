"""Localizing the tasks of a stream ahead of their strategies, all at the same time.

A task's dense run depends on the base, the task's rows, the settings and the seed, and on no other
task; and so does its ranking, unless a mask is learned on candidates alone, whose number grows with
what earlier tasks own. A ranking that no cache keeps is left to the runs. So on several workers a
stream of T tasks need not wait for T dense runs in a row, and runs that need the same one do not
make it twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cl_graft.experiments.comparison.jobs import Job
from cl_graft.experiments.config import ExperimentConfig
from cl_graft.experiments.run_setup import imposed
from cl_graft.localization import find_localizer
from cl_graft.localization.region_search import is_ranking_cached
from cl_graft.strategies.method import Method
from cl_graft.strategies.registry import find_strategy

__all__ = ["localize_ahead", "wait_for_first"]

_DENSE, _RANKED = "independent", "grafting_without_retraining"
"""The strategies that make a dense run, or a ranking beside it, and do little more."""

_Kind = tuple[int, str, object, float | str]
"""What such a run depends on beside the task: seed, strategy, localizer, density."""


def localize_ahead(jobs: Sequence[Job], tasks: int) -> list[Job]:
    """Put what tasks need for themselves before the runs that need it.

    One job a task, seed and localizer, whatever the number of strategies. Where two localizers
    start from the same dense run, the second waits for the first, and so do the runs of
    independent fine-tuning.

    Args:
        jobs: The runs, and the choices of values, of a comparison.
        tasks: How many tasks the stream has.

    Returns:
        The jobs, with those that are new before the first that waits for them.
    """
    ahead: dict[_Kind, list[Job]] = {}
    ordered: list[Job] = []
    for job in jobs:
        if job.is_run and job.seed is not None:
            row = find_strategy(job.strategy)
            own = imposed(row, job.config)
            if strategy := _strategy(row, own):
                kind: _Kind = (job.seed, strategy, "", 0.0)
                if strategy == _RANKED:
                    kind = (job.seed, strategy, own.grafting.localizer, own.grafting.density)
                if kind not in ahead:
                    dense = _dense_runs(ahead, job.seed)
                    ahead[kind] = [
                        replace(
                            job,
                            strategy=strategy,
                            config=own.changed({"comparison.tune": False}),
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
        jobs: Of comparisons that share a cache.
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


def _strategy(row: Method, config: ExperimentConfig) -> str:
    """Return the strategy that makes what a task of this one needs; empty if that is little."""
    if not row.has_regions:
        return ""
    localizer = find_localizer(config.grafting.localizer)
    if not localizer.needs_dense_run:
        return ""
    grows = config.grafting.mode == "prefix" and config.grafting.avoid_owned
    on_candidates = (
        config.grafting.mask_candidates is not None and localizer.score_candidates is not None
    )
    is_shared = is_ranking_cached(localizer) and not (grows and on_candidates)
    return _RANKED if is_shared else _DENSE


def _dense_runs(ahead: Mapping[_Kind, list[Job]], seed: int | None) -> list[Job]:
    """Return the jobs of a seed that come first: those that make its dense runs."""
    return next((jobs for kind, jobs in ahead.items() if kind[0] == seed), [])


def _names(jobs: Sequence[Job]) -> frozenset[str]:
    return frozenset(job.name for job in jobs)
