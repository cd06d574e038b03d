"""Localizers are compared with random regions cell by cell, each at its best rate on dev."""

import pytest
from papers import random_control
from papers.measurements import Measurement
from papers.random_control import differences_from_random, gradient_shares
from smoke_benches import smoke_bench


def test_a_region_of_everything_holds_the_whole_gradient_and_a_tenth_at_random_about_a_tenth(
    tiny_bert, tmp_path, monkeypatch
):
    bench = smoke_bench("gradient_share", tiny_bert, tmp_path, "grafting.budgets=[0.1, 1.0]")
    monkeypatch.setattr(random_control, "LOCALIZERS", ("random", "movement", "base_gradient"))
    found = {(m.method, m.measure, m.x): m.value for m in gradient_shares(bench)}
    gradient, movement = "share of the squared gradient", "share of the squared movement"
    for method in ("random", "movement", "base_gradient"):
        assert found[method, gradient, 1.0] == pytest.approx(1.0)
        assert found[method, movement, 1.0] == pytest.approx(1.0)
    assert 0.03 < found["random", gradient, 0.1] < 0.3
    assert found["base_gradient", gradient, 0.1] > found["random", gradient, 0.1]
    assert found["movement", movement, 0.1] > found["base_gradient", movement, 0.1]


def cell(**scores):
    """A cell of two tasks, with scores by method: (of the first, of the second)."""
    return [
        Measurement(task, method, "score at the rate that dev chooses", own[place], 0.003)
        for method, own in scores.items()
        for place, task in enumerate(("easy", "hard"))
    ]


def test_localizers_are_tested_against_the_random_regions_of_the_same_cells():
    cells = [
        cell(random=(0.80, 0.50), magnitude=(0.80, 0.51), movement=(0.81, 0.60)),
        cell(random=(0.70, 0.55), magnitude=(0.70, 0.53), movement=(0.73, 0.66)),
        cell(random=(0.90, 0.45), magnitude=(0.90, 0.46), movement=(0.92, 0.54)),
    ]
    found = {
        (m.task, m.method, m.measure): m.value for m in differences_from_random(cells, []) if m.x
    }
    assert not any(method == "random" for _, method, _ in found)
    assert found["easy", "magnitude", "above random"] == pytest.approx(0.0)
    assert found["hard", "movement", "above random"] == pytest.approx(0.1)
    assert found["all", "movement", "above random"] == pytest.approx((0.055 + 0.07 + 0.055) / 3)
    # Differences of 10, 11 and 9 points: t = 17.3 with 2 degrees of freedom.
    assert found["hard", "movement", "p"] == pytest.approx(0.0033, abs=2e-4)
    assert found["hard", "movement", "p corrected"] == pytest.approx(
        2 * found["hard", "movement", "p"]
    )
    assert ("easy", "magnitude", "p") not in found  # equal in every cell
