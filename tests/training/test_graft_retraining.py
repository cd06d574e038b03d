"""Training a region changes the region and nothing else."""

import pytest
import torch
from small_tasks import make_task

from cl_graft.errors import DivergedError
from cl_graft.grafts.graft import gather, grafted, snapshot
from cl_graft.grafts.region import Layout, Region
from cl_graft.training.fine_tuning_settings import FineTuning
from cl_graft.training.graft_retraining import train_region


def test_training_learns_inside_the_region_and_puts_the_model_back():
    task = make_task()
    before = snapshot(dict(task.model.named_parameters()))
    region = Region.of(Layout.of(task.parameters), range(0, 500, 5))
    plan = FineTuning(steps=150, batch_size=16, lr=0.5, evaluations=0)
    task.model.eval()
    start = float(task.loss(range(150)).detach())
    values, head = train_region(task, region, plan, head=snapshot(task.head), seed=0)
    again, _ = train_region(task, region, plan, head=snapshot(task.head), seed=0)
    after = dict(task.model.named_parameters())
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert all(parameter.requires_grad for parameter in after.values())
    assert values.region == region
    assert values.same_bits(again)
    with grafted(task.model, values), torch.no_grad():
        for name, parameter in task.head.items():
            parameter.copy_(head[name])
        assert float(task.loss(range(150)).detach()) < 0.9 * start


def test_training_that_diverges_says_at_which_step_and_rate_and_puts_the_model_back():
    task = make_task()
    before = snapshot(dict(task.model.named_parameters()))
    region = Region.of(Layout.of(task.parameters), range(0, 500, 5))
    plan = FineTuning(steps=30, batch_size=16, lr=1e18, clip=0, evaluations=0)
    with pytest.raises(DivergedError, match=r"at step \d+ of region training with lr \d"):
        train_region(task, region, plan, head=snapshot(task.head), seed=0)
    after = dict(task.model.named_parameters())
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert all(parameter.requires_grad for parameter in after.values())


def test_a_head_may_have_a_rate_of_its_own_beside_the_region():
    task = make_task()
    region = Region.of(Layout.of(task.parameters), range(0, 500, 5))
    plan = FineTuning(steps=1, lr=0.1, optimizer="adamw", weight_decay=0.0, clip=0, evaluations=0)
    base, first = gather(task.parameters, region), snapshot(task.head)
    values, head = train_region(task, region, plan, head=first, seed=0, head_lr=0.003)
    # The first step of Adam is as long as the rate, whatever the gradient.
    steps = [(values.values - base.values).abs().max()]
    steps += [(head[name] - value).abs().max() for name, value in first.items()]
    torch.testing.assert_close(torch.stack(steps), torch.tensor([0.1, *[0.003] * len(first)]))
