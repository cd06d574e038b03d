"""Regions are trained again once, and dev chooses their rate."""

import pytest
import torch
from papers.region_rates import region_rates
from papers.retraining import retrain_region
from smoke_benches import smoke_bench

from cl_graft.errors import DivergedError
from cl_graft.grafts.region import Region
from cl_graft.training.graft_retraining import train_region


def test_a_region_is_trained_again_once_and_then_answered_by_the_cache(
    tiny_bert, tmp_path, monkeypatch
):
    bench = smoke_bench("table1", tiny_bert, tmp_path)
    trained = []

    def counted(task, region, settings, **more):
        trained.append(len(region))
        return train_region(task, region, settings, **more)

    monkeypatch.setattr("papers.retraining.train_region", counted)
    region, other = (Region.of(bench.layout, range(0, 900, step)) for step in (9, 10))
    values, head = retrain_region(bench, 0, region)
    # Another process has a bench of its own.
    again, head_again = retrain_region(smoke_bench("table1", tiny_bert, tmp_path), 0, region)
    assert trained == [100]
    assert values.same_bits(again)
    assert all(torch.equal(value, head_again[name]) for name, value in head.items())
    retrain_region(bench, 0, other)
    retrain_region(bench, 0, region, lr=0.01)
    retrain_region(smoke_bench("table1", tiny_bert, tmp_path, data_seed=1), 0, region)
    retrain_region(bench, 0, region, anew=True)
    assert trained == [100, 90, 100, 100, 100]


def test_a_rate_at_which_a_region_diverges_is_passed_over(tiny_bert, tmp_path, monkeypatch):
    bench = smoke_bench("region_rates", tiny_bert, tmp_path)
    monkeypatch.setattr("papers.region_rates.RATES", (0.1, 1e18))
    measurements = list(region_rates(bench))
    assert {r.x for r in measurements if r.measure == "score" and r.method == "random"} == {0.1}
    monkeypatch.setattr("papers.region_rates.RATES", (1e18,))
    with pytest.raises(DivergedError):
        list(region_rates(bench))
