"""Localizers are compared with random regions cell by cell, each at its best rate on dev."""

import pytest
from papers import random_control
from papers.measurements import Measurement
from papers.random_control import RATES, against_random, differences_from_random, gradient_shares
from smoke_benches import smoke_bench


def test_each_region_is_trained_at_every_rate_and_read_at_the_best_on_dev(
    tiny_bert, tmp_path, monkeypatch
):
    bench = smoke_bench("random_control", tiny_bert, tmp_path, "grafting.budgets=[0.01, 0.1]")
    trained, read = [], []
    train, answer = random_control.retrain_region, bench.graft_answers

    def counted(bench, label, region, *, lr):
        trained.append((len(region), lr))
        return train(bench, label, region, lr=lr)

    def watched(label, *own, split="test"):
        read.append(split)
        return answer(label, *own, split=split)

    monkeypatch.setattr(random_control, "LOCALIZERS", ("random", "lift"))
    monkeypatch.setattr(random_control, "retrain_region", counted)
    monkeypatch.setattr(bench, "graft_answers", watched)
    found = list(against_random(bench))
    sizes = [bench.size(density) for density in (0.01, 0.1)]
    assert trained == 2 * [(size, rate) for size in sizes for rate in RATES]
    assert read == 4 * [*["valid"] * len(RATES), "test"]
    measures = {(m.method, m.measure, m.x): m.value for m in found}
    assert {m.method for m in found} == {"fine-tuning", "random", "lift"}
    assert measures["lift", "rows before training", 0.1] == 0
    assert measures["lift", "rate that dev chooses", 0.1] in RATES


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
        cell(random=(0.80, 0.50), lift=(0.80, 0.51), movement=(0.81, 0.60)),
        cell(random=(0.70, 0.55), lift=(0.70, 0.53), movement=(0.73, 0.66)),
        cell(random=(0.90, 0.45), lift=(0.90, 0.46), movement=(0.92, 0.54)),
    ]
    found = {
        (m.task, m.method, m.measure): m.value for m in differences_from_random(cells, []) if m.x
    }
    assert not any(method == "random" for _, method, _ in found)
    assert found["easy", "lift", "above random"] == pytest.approx(0.0)
    assert found["hard", "movement", "above random"] == pytest.approx(0.1)
    assert found["all", "movement", "above random"] == pytest.approx((0.055 + 0.07 + 0.055) / 3)
    # Differences of 10, 11 and 9 points: t = 17.3 with 2 degrees of freedom.
    assert found["hard", "movement", "p"] == pytest.approx(0.0033, abs=2e-4)
    assert found["hard", "movement", "p corrected"] == pytest.approx(
        2 * found["hard", "movement", "p"]
    )
    assert ("easy", "lift", "p") not in found  # equal in every cell


def test_a_localizer_that_some_cells_lack_is_not_tested():
    cells = [cell(random=(0.8, 0.5)) for _ in range(3)]
    cells[0] = cell(random=(0.8, 0.5), lift=(0.9, 0.6))
    assert list(differences_from_random(cells, [])) == []
