"""Models of several tasks: how a schedule is chosen, and what purifying a union of regions does."""

from dataclasses import replace

import pytest
import torch
from papers.multitask import _joint, _learn_all, _purify, _scores, grow_region
from slow_cases import slow
from smoke_benches import smoke_bench

from cl_graft.grafts.graft import gather, grafted, snapshot
from cl_graft.grafts.model_state import replace_parameters
from cl_graft.grafts.region import union
from cl_graft.localization.learned_mask import learned_mask
from cl_graft.metrics import task_loss


@pytest.mark.parametrize(("optimizer", "lr"), [("sgd", 0.05), *slow(("adamw", 0.003))])
def test_purifying_a_union_lowers_its_tasks_losses_and_moves_nothing_else(
    optimizer, lr, tiny_bert, tmp_path
):
    sets = [f"fine_tuning.optimizer={optimizer}", f"fine_tuning.lr={lr}", "fine_tuning.steps=30"]
    bench = smoke_bench("fig8", tiny_bert, tmp_path, *sets)
    schedule, run, heads = _learn_all(bench)
    labels = [0, 1]
    regions = [bench.region(label, replace(run, head=heads[label])) for label in labels]
    group = union(regions, layout=bench.layout)
    before = snapshot(dict(bench.model.named_parameters()))

    def loss(carried):
        with grafted(bench.task(0).model, gather(carried.tuned, group)):
            total = 0.0
            for label in labels:
                with replace_parameters(bench.task(label).head, heads[label]):
                    answers = bench.answers(label, split="train")
                    total += float(task_loss(answers.logits, answers.targets))
        return total

    purified = _purify(bench, schedule, run, group, labels, heads)
    assert loss(purified) < loss(run)
    after = dict(bench.model.named_parameters())
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    inside = group.masks()
    for name, value in purified.tuned.items():
        moved = value != run.tuned[name]
        assert not (moved & ~inside[name].view_as(moved)).any()


def test_a_joint_model_is_chosen_by_its_mean_score_on_dev(tiny_bert, tmp_path):
    bench = smoke_bench(
        "fig13",
        tiny_bert,
        tmp_path,
        "training.grid=true",
        "fine_tuning.steps=40",
        "stream.max_dev=null",
        "stream.tasks=[topic,banking]",
        "stream.shots=16",
    )
    chosen, run, _ = _learn_all(bench)
    dev = {}
    for schedule in bench.schedules(0):
        one, own = _joint(bench, schedule)
        dev[schedule] = sum(_scores(bench, own, run=one, split="valid"))
        if schedule == chosen:
            assert all(torch.equal(value, run.tuned[name]) for name, value in one.tuned.items())
    assert len(set(dev.values())) > 1
    assert chosen == max(dev, key=dev.__getitem__)


def test_a_region_that_grows_from_a_base_is_learned_once_for_each_base(
    tiny_bert, tmp_path, monkeypatch
):
    learned = []

    def counted(inputs, *, started, **more):
        learned.append(len(started))
        return learned_mask(inputs, started=started, **more)

    monkeypatch.setattr("papers.multitask.learned_mask", counted)
    found = []
    for base in (0.002, 0.002, 0.01):
        bench = smoke_bench("fig12", tiny_bert, tmp_path)  # as another process would
        found.append(grow_region(bench, 0, bench.dense(0), base=base))
    assert learned == [bench.size(0.002), bench.size(0.01)]
    assert found[0] == found[1] != found[2]
