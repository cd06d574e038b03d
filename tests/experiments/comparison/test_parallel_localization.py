"""Which dense runs and rankings are made before the cells that share them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from configs import config_with

from cl_graft.lab.experiments.comparison.jobs import Job
from cl_graft.lab.experiments.comparison.parallel_localization import localize_ahead


def jobs_of(*strategies: str, tasks: int = 2, seeds: tuple[int, ...] = (0,), **settings: Any):
    config = config_with({"tasks": ["sentiment", "topic"], "density": 0.01, **settings})
    cells = [
        Job(name, seed, config, Path("out"), "", Path("cache"))
        for seed in seeds
        for name in strategies
    ]
    return localize_ahead(cells, tasks)


def names(jobs: list[Job]) -> list[str]:
    return [job.name for job in jobs]


def needs_of(jobs: list[Job], name: str) -> set[str]:
    (job,) = (job for job in jobs if job.name == name)
    return set(job.needs)


def test_strategies_without_regions_need_nothing():
    jobs = jobs_of("naive", "lora", "independent", "replay")
    assert names(jobs) == ["naive, seed 0", "lora, seed 0", "independent, seed 0", "replay, seed 0"]
    assert not any(job.needs for job in jobs)


def test_masks_on_candidates_share_dense_runs_alone():
    jobs = jobs_of("grafting", "grafting_by_entropy", "merging_by_ties", seeds=(0, 1))
    dense = ["dense, seed 0, task 0 ahead", "dense, seed 0, task 1 ahead"]
    assert names(jobs)[:3] == [*dense, "grafting, seed 0"]
    assert len(jobs) == 2 * (2 + 3)
    for name in ("grafting, seed 0", "grafting_by_entropy, seed 0", "merging_by_ties, seed 0"):
        assert needs_of(jobs, name) == set(dense)
    assert not needs_of(jobs, "grafting, seed 1") & set(dense)


def test_rankings_that_no_other_task_changes_are_made_ahead_too():
    ranked = {"learned_mask 0.01, seed 0, task 0 ahead", "learned_mask 0.01, seed 0, task 1 ahead"}
    for settings in ({"mask_candidates": None}, {"mode": "isolated"}, {"avoid_owned": False}):
        jobs = jobs_of("grafting", **settings)
        assert needs_of(jobs, "grafting, seed 0") == ranked
        made = jobs[0]
        assert (made.strategy, made.ahead) == ("grafting_without_retraining", 0)


def test_the_second_localizer_waits_for_the_dense_runs_of_the_first():
    jobs = jobs_of("independent", "grafting_movement", "lt_sft", "grafting_averaged_gain", tasks=1)
    # No cache keeps a ranking by movement, so only its dense run is made ahead.
    first, second = "dense, seed 0, task 0 ahead", "averaged_gain 0.01, seed 0, task 0 ahead"
    assert needs_of(jobs, first) == set()
    assert needs_of(jobs, second) == {first}
    assert needs_of(jobs, "lt_sft, seed 0") == {first}
    assert needs_of(jobs, "independent, seed 0") == {first}


def test_localizers_that_look_at_the_base_alone_have_nothing_ahead():
    assert names(jobs_of("grafting_base_gradient")) == ["grafting_base_gradient, seed 0"]


def test_no_two_jobs_share_a_name_or_a_folder():
    strategies = ("grafting", "grafting_movement", "grafting_fisher", "lt_sft", "merging_by_ties")
    jobs = jobs_of(*strategies, "independent", seeds=(0, 1), tasks=3)
    assert len(set(names(jobs))) == len({job.folder for job in jobs}) == len(jobs)
    for job in jobs:
        assert job.needs <= set(names(jobs))
        assert job.is_run == (job.ahead is None)
