"""What a comparison says of differences: paired by seed, and corrected."""

from __future__ import annotations

from dataclasses import replace

import pytest
from small_results import shifted_results

from cl_graft.lab.results.run_results import RunResult
from cl_graft.lab.results.strategy_statistics import (
    Spread,
    compare_with,
    seed_means,
    spread_over_seeds,
)


@pytest.fixture
def results() -> list[RunResult]:
    return shifted_results()


def test_a_clear_difference_is_told_from_chance_and_equals_are_not(results):
    tests = {row.strategy: row for row in compare_with("grafting", results)}
    assert tests["naive"].difference == pytest.approx(0.08)
    assert tests["naive"].p_holm < 0.05
    assert tests["naive"].interval[0] > 0
    assert tests["independent"].difference == pytest.approx(0.0)
    assert tests["independent"].p_holm == pytest.approx(1.0)
    assert {row.n for row in tests.values()} == {4}


def test_only_seeds_of_both_are_paired_and_one_is_too_few(results):
    fewer = [r for r in results if r.strategy != "naive" or r.seed in (1, 2, 3)]
    tests = {row.strategy: row for row in compare_with("grafting", fewer)}
    assert tests["naive"].n == 3
    two = [r for r in results if r.strategy != "naive" or r.seed in (1, 2)]
    assert [row.strategy for row in compare_with("grafting", two)] == ["independent"]


def test_orders_of_one_seed_are_one_sample(results):
    turned = [replace(r, tasks=r.tasks[::-1], R=[row[::-1] for row in r.R]) for r in results]
    both = results + turned
    (first, *_), (again, *_) = (compare_with("grafting", r) for r in (results, both))
    assert again == first
    one_seed = [r for r in both if r.seed == 0]
    assert compare_with("grafting", one_seed) == []
    found = seed_means([r for r in both if r.strategy == "naive"], lambda r: r.average_accuracy)
    assert found == pytest.approx([0.52, 0.55, 0.53, 0.54])


def test_a_difference_that_every_seed_repeats_has_no_interval_and_no_p(results):
    shifted = [
        replace(r, average_accuracy=0.6 + 0.1 * r.seed + (0.1 if r.strategy == "naive" else 0.0))
        for r in results
        if r.strategy != "independent"
    ]
    (row,) = compare_with("grafting", shifted)
    assert row.difference == pytest.approx(-0.1)
    assert row.interval is row.p is row.p_holm is None


def test_a_measure_without_values_has_no_interval():
    assert spread_over_seeds([None, None]) == Spread(None, None, None, 0)
    assert spread_over_seeds([0.5, None]).n == 1
