"""Models of several tasks: how a schedule is chosen, and what purifying a union of regions does."""

from dataclasses import replace

import pytest
import torch
from papers.multitask import _learn_all, _purify
from slow_cases import slow
from smoke_benches import smoke_bench

from cl_graft.grafts.graft import gather, grafted, snapshot
from cl_graft.grafts.model_state import replace_parameters
from cl_graft.grafts.region import union
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
