"""Re-training changes a region and nothing else, and is done once."""

from dataclasses import replace

import pytest
import torch
from papers.rates import region_rates
from papers.retraining import retrain, retrained
from small_tasks import make_task
from smoke_benches import smoke_bench

from cl_graft.errors import DivergedError
from cl_graft.grafts.graft import gather, grafted, snapshot
from cl_graft.grafts.region import Layout, Region
from cl_graft.training.fine_tuning import FineTuning


def test_retraining_learns_inside_the_region_and_puts_the_model_back():
    task = make_task()
    before = snapshot(dict(task.model.named_parameters()))
    region = Region.of(Layout.of(task.parameters), range(0, 500, 5))
    plan = FineTuning(steps=150, batch_size=16, lr=0.5, evaluations=0)
    task.model.eval()
    start = float(task.loss(range(150)).detach())
    values, head = retrain(task, region, plan, head=snapshot(task.head), seed=0)
    again, _ = retrain(task, region, plan, head=snapshot(task.head), seed=0)
    after = dict(task.model.named_parameters())
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert all(parameter.requires_grad for parameter in after.values())
    assert values.region == region
    assert values.same_bits(again)
    with grafted(task.model, values), torch.no_grad():
        for name, parameter in task.head.items():
            parameter.copy_(head[name])
        assert float(task.loss(range(150)).detach()) < 0.9 * start


def test_retraining_that_diverges_says_at_which_step_and_rate_and_puts_the_model_back():
    task = make_task()
    before = snapshot(dict(task.model.named_parameters()))
    region = Region.of(Layout.of(task.parameters), range(0, 500, 5))
    plan = FineTuning(steps=30, batch_size=16, lr=1e30, clip=0, evaluations=0)
    with pytest.raises(DivergedError, match=r"at step \d+ of region training with lr \d"):
        retrain(task, region, plan, head=snapshot(task.head), seed=0)
    after = dict(task.model.named_parameters())
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert all(parameter.requires_grad for parameter in after.values())


def test_adamw_moves_every_coordinate_of_a_region_by_the_learning_rate_at_first():
    task = make_task()
    region = Region.of(Layout.of(task.parameters), range(0, 500, 5))
    plan = FineTuning(
        steps=1, batch_size=16, lr=0.01, optimizer="adamw", weight_decay=0.0, clip=0, evaluations=0
    )
    base = gather(task.parameters, region)
    values, _ = retrain(task, region, plan, head=snapshot(task.head), seed=0)
    moved = (values.values - base.values).abs()
    assert torch.allclose(moved[moved > 1e-6], torch.tensor(0.01), rtol=1e-3)
    assert (moved > 1e-6).float().mean() > 0.5


def test_retraining_takes_batches_of_similar_length_where_the_schedule_says_so(tiny_bert, tmp_path):
    def padding(grouped):
        sets = [f"group_by_length={grouped}", "shots=16", "max_length=64"]
        bench = smoke_bench("table1", tiny_bert, tmp_path / grouped, *sets)
        task = bench.problem(0)
        widths = []

        def watched(inputs):
            if inputs.shape[0] == bench.config.batch_size and torch.is_grad_enabled():
                widths.append(int((inputs[:, 1] != 0).any(0).sum()))  # what is not padding
            return task.forward(inputs)

        bench._problems[0] = replace(task, forward=watched)
        retrained(bench, 0, Region.of(bench.layout, range(50)), steps=12)
        assert len(widths) == 12
        return sum(widths)

    assert padding("true") < padding("false")


def test_a_region_is_trained_again_once_and_then_answered_by_the_cache(
    tiny_bert, tmp_path, monkeypatch
):
    bench = smoke_bench("table1", tiny_bert, tmp_path)
    trained = []

    def counted(task, region, settings, **more):
        trained.append(len(region))
        return retrain(task, region, settings, **more)

    monkeypatch.setattr("papers.retraining.retrain", counted)
    region, other = (Region.of(bench.layout, range(0, 900, step)) for step in (9, 10))
    values, head = retrained(bench, 0, region)
    # Another process has a bench of its own.
    again, head_again = retrained(smoke_bench("table1", tiny_bert, tmp_path), 0, region)
    assert trained == [100]
    assert values.same_bits(again)
    assert all(torch.equal(value, head_again[name]) for name, value in head.items())
    retrained(bench, 0, other)
    retrained(bench, 0, region, lr=0.01)
    retrained(smoke_bench("table1", tiny_bert, tmp_path, data_seed=1), 0, region)
    retrained(bench, 0, region, anew=True)
    assert trained == [100, 90, 100, 100, 100]


def test_a_rate_at_which_a_region_diverges_is_passed_over(tiny_bert, tmp_path, monkeypatch):
    bench = smoke_bench("region_rates", tiny_bert, tmp_path)
    monkeypatch.setattr("papers.rates.RATES", (0.1, 1e38))
    readings = list(region_rates(bench))
    assert {r.x for r in readings if r.measure == "score" and r.method == "random"} == {0.1}
    monkeypatch.setattr("papers.rates.RATES", (1e38,))
    with pytest.raises(DivergedError):
        list(region_rates(bench))


def test_a_grid_has_dev_choose_the_rate_of_a_region(tiny_bert, tmp_path):
    sets = ["grid=true", "steps=40", "density=0.05", "max_dev=null"]
    bench = smoke_bench("table1", tiny_bert, tmp_path, *sets)
    region = bench.biases(0)

    def dev(found) -> float:
        return bench.graft_answers(0, *found, split="valid").score

    rates = [dev(retrained(bench, 0, region, lr=rate)) for rate in (0.01, 0.1, 1.0)]
    assert len(set(rates)) > 1
    assert dev(retrained(bench, 0, region)) == max(rates)
