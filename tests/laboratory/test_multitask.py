"""Models of several tasks: how a schedule is chosen, and what purifying a union of regions does."""

from dataclasses import replace

import pytest
import torch

from cl_graft.experiments.cache import DirectoryCache
from cl_graft.graft import gather, grafted, snapshot
from cl_graft.keeping import holding
from cl_graft.laboratory import EXPERIMENTS, experiment_config
from cl_graft.laboratory.bench import Bench
from cl_graft.laboratory.multitask import _joint, _learn_all, _purified, _scores
from cl_graft.metrics.loss import task_loss
from cl_graft.region import union


@pytest.mark.parametrize(("optimizer", "lr"), [("sgd", 0.05), ("adamw", 0.003)])
def test_purifying_a_union_lowers_its_tasks_losses_and_moves_nothing_else(
    optimizer, lr, tiny_bert, tmp_path
):
    sets = [f"model={tiny_bert}", f"dense_optimizer={optimizer}", f"lr={lr}", "steps=30"]
    config = experiment_config(EXPERIMENTS["fig8"], "smoke", sets=sets)
    bench = Bench(config, data_seed=0, cache=DirectoryCache(tmp_path))
    schedule, run, heads = _learn_all(bench)
    labels = [0, 1]
    regions = [bench.region(label, replace(run, head=heads[label])) for label in labels]
    group = union(regions, layout=bench.layout)
    before = snapshot(dict(bench.model.named_parameters()))

    def loss(carried):
        with grafted(bench.problem(0).model, gather(carried.tuned, group)):
            total = 0.0
            for label in labels:
                with holding(bench.problem(label).head, heads[label]):
                    answers = bench.answers(label, split="train")
                    total += float(task_loss(answers.logits, answers.targets))
        return total

    purified = _purified(bench, schedule, run, group, labels, heads)
    assert loss(purified) < loss(run)
    after = dict(bench.model.named_parameters())
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    inside = group.masks()
    for name, value in purified.tuned.items():
        moved = value != run.tuned[name]
        assert not (moved & ~inside[name].view_as(moved)).any()


def test_a_joint_model_is_chosen_by_its_mean_score_on_dev(tiny_bert, tmp_path):
    sets = [f"model={tiny_bert}", "grid=true", "steps=12", "max_dev=null"]
    config = experiment_config(EXPERIMENTS["fig13"], "smoke", sets=sets)
    bench = Bench(config, data_seed=0, cache=DirectoryCache(tmp_path))
    chosen, run, _ = _learn_all(bench)
    dev = {}
    for schedule in bench.schedules(0):
        one, own = _joint(bench, schedule)
        dev[schedule] = sum(_scores(bench, own, run=one, split="valid"))
        if schedule == chosen:
            assert all(torch.equal(value, run.tuned[name]) for name, value in one.tuned.items())
    assert len(set(dev.values())) > 1
    assert chosen == max(dev, key=dev.__getitem__)
