"""A region is split by the gain that its coordinates bring to groups of rows."""

from dataclasses import replace

import pytest
import torch
from papers.region_split import (
    group_gains,
    split_at_random,
    split_by_gain,
    split_region,
)
from small_tasks import make_task
from torch import nn
from torch.utils.data import TensorDataset

from cl_graft.errors import NotFinite
from cl_graft.grafts.graft import Graft, extract, grafted, snapshot
from cl_graft.grafts.region import Layout, Region, union
from cl_graft.runtime.seeding import generator
from cl_graft.training.examples import Examples

GROUPS = [range(0, 40), range(40, 90), range(90, 97)]


def task_and_graft(*, size=0.3):
    """A task, and a graft that moves every third coordinate at random."""
    task = make_task()
    region = Region.of(Layout.of(task.parameters), range(0, 500, 3))
    move = torch.randn(len(region), generator=generator(1, "move"))
    return task, Graft(region, extract(task.model, region).values + size * move)


def loss(task, rows):
    task.model.eval()
    with torch.no_grad():
        return float(task.loss(list(rows)))


@pytest.mark.parametrize("balanced", [True, False])
def test_parts_are_disjoint_and_their_union_is_the_region(balanced):
    task, graft = task_and_graft()
    parts = split_region(task, graft, GROUPS, balanced=balanced)
    assert len(parts) == 3
    assert sum(map(len, parts)) == len(graft)
    assert union(parts, layout=graft.region.layout) == graft.region
    if balanced:
        assert sorted(map(len, parts)) == [55, 56, 56]


def test_a_part_alone_changes_its_coordinates_only_and_is_put_back_bit_for_bit():
    task, graft = task_and_graft()
    before = snapshot(dict(task.model.named_parameters()))
    part, *others = split_region(task, graft, GROUPS)
    with grafted(task.model, graft.on(part)):
        assert extract(task.model, part).same_bits(graft.on(part))
        for other in others:
            assert torch.equal(extract(task.model, other).values, _at(before, other))
        moved = {n for n, p in task.model.named_parameters() if not torch.equal(p, before[n])}
        assert moved <= set(task.parameters)
    after = dict(task.model.named_parameters())
    assert all(torch.equal(value, after[name]) for name, value in before.items())


def _at(values, region):
    flat = torch.cat([values[name].reshape(-1) for name in region.layout.names])
    return flat[region.index]


def test_the_model_stays_as_it_was_with_modes_and_gradient_flags():
    task, graft = task_and_graft()
    task.model.train()
    before = snapshot(dict(task.model.named_parameters()))
    first = group_gains(task, graft, GROUPS)
    assert task.model.training
    for name, parameter in task.model.named_parameters():
        assert torch.equal(parameter, before[name])
        assert parameter.requires_grad
        assert parameter.grad is None
    assert torch.equal(group_gains(task, graft, GROUPS), first)  # dropout takes no part


def test_a_gain_is_the_move_times_the_dense_gradient():
    task, graft = task_and_graft()
    task.model.eval()
    move = graft.values - extract(task.model, graft.region).values
    found = group_gains(task, graft, GROUPS, points=[0.0])
    for gains, rows in zip(found, GROUPS, strict=True):
        gradients = torch.autograd.grad(task.loss(list(rows)), list(task.parameters.values()))
        dense = dict(zip(task.parameters, gradients, strict=True))
        assert torch.allclose(gains, -move * _at(dense, graft.region), atol=1e-6)


def test_gains_at_midpoints_add_up_to_what_the_graft_takes_off_the_loss():
    task, graft = task_and_graft(size=0.5)
    middle = group_gains(task, graft, GROUPS).sum(1)
    first_order = group_gains(task, graft, GROUPS, points=[0.0]).sum(1)
    for place, rows in enumerate(GROUPS):
        with grafted(task.model, graft):
            whole = loss(task, rows)
        taken = loss(task, rows) - whole
        assert float(middle[place]) == pytest.approx(taken, rel=0.1, abs=0.02)
        assert abs(float(middle[place]) - taken) < abs(float(first_order[place]) - taken)


def test_coordinates_go_to_the_rows_that_use_them():
    draw = generator(0, "planted")
    inputs = torch.randn(80, 8, generator=draw)
    inputs[:40, 4:] = 0  # the first rows use the first four columns of the weight
    inputs[40:, :4] = 0
    targets = torch.randint(2, (80,), generator=draw)
    model = nn.ModuleDict({"body": nn.Linear(8, 6, bias=False), "head": nn.Linear(6, 2)})
    body = dict(model.named_parameters())["body.weight"]
    task = replace(
        make_task(),
        model=model,
        parameters={"body.weight": body},
        head={},
        forward=lambda x: model["head"](torch.tanh(model["body"](x))),
        train=Examples(TensorDataset(inputs, targets)),
    )
    gradient = torch.autograd.grad(task.loss(range(80)), body)[0]
    region = Region.full(Layout.of(task.parameters))
    graft = Graft(region, (body.detach() - 0.1 * gradient).reshape(-1))
    first, second = split_region(task, graft, [range(40), range(40, 80)], balanced=True)
    assert set((first.index % 8).tolist()) == {0, 1, 2, 3}
    assert set((second.index % 8).tolist()) == {4, 5, 6, 7}


REGION = Region.of(Layout(("weight",), ((9,),)), [0, 1, 2, 4, 5, 8])


def test_a_group_with_a_steep_loss_does_not_get_everything():
    gains = torch.tensor([[6.0, 5.0, 4.0, 3.0, 2.0, 1.0], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]])
    for scale in (1.0, 1000.0):
        first, second = split_by_gain(REGION, gains * torch.tensor([[scale], [1.0]]))
        assert (first.index.tolist(), second.index.tolist()) == ([0, 1, 2], [4, 5, 8])


def test_a_full_group_takes_no_more_and_those_with_the_largest_lead_choose_first():
    gains = torch.tensor(
        [[9.0, 8.0, 7.0, 6.0, 5.0, 4.0], [0.0, 0.1, 0.0, 0.3, 0.0, 0.0], [0.0] * 6]
    )
    parts = [part.index.tolist() for part in split_by_gain(REGION, gains)]
    assert [len(part) for part in parts] == [2, 2, 2]
    assert parts[1][0] == 1 or 4 in parts[1]
    loose = split_by_gain(REGION, gains, balanced=False)
    assert loose[0].index.tolist() == [0, 2, 5, 8]
    assert loose[1].index.tolist() == [1, 4]
    assert len(loose[2]) == 0


def test_a_random_split_has_the_sizes_asked_for_and_depends_on_its_seed():
    parts = split_at_random(REGION, [3, 1, 2], seed=0)
    assert [len(part) for part in parts] == [3, 1, 2]
    assert union(parts, layout=REGION.layout) == REGION
    assert list(parts) == list(split_at_random(REGION, [3, 1, 2], seed=0))
    assert any(split_at_random(REGION, [3, 1, 2], seed=s)[0] != parts[0] for s in range(1, 5))
    with pytest.raises(ValueError, match=r"sizes must add up to 6, got \[3, 4\]"):
        split_at_random(REGION, [3, 4], seed=0)


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        ([range(10)], "between two groups of rows or more, got 1"),
        ([range(10), []], "group 1 has no rows"),
        ([range(10), [150]], "group 1 names row 150 of a task with 150 training rows"),
        ([range(10), [-1]], "group 1 names row -1"),
        ([range(10), [12, 9]], "row 9 stands in group 0 and again in group 1"),
        ([[3, 3], range(10, 20)], "row 3 stands in group 0 and again in group 0"),
    ],
)
def test_groups_that_are_no_disjoint_rows_of_the_task_are_refused(groups, said):
    task, graft = task_and_graft()
    with pytest.raises(ValueError, match=said):
        split_region(task, graft, groups)


def test_a_graft_of_another_model_wrong_points_and_gains_that_are_no_numbers_are_refused():
    task, graft = task_and_graft()
    other = Graft(REGION, torch.zeros(6))
    with pytest.raises(ValueError, match="is it a graft of another model"):
        split_region(task, other, GROUPS)
    with pytest.raises(ValueError, match=r"points must be shares in \[0, 1\], .* got \[2.0\]"):
        group_gains(task, graft, GROUPS, points=[2.0])
    with pytest.raises(ValueError, match="gains in fp16 round away"):
        group_gains(replace(task, precision="fp16"), graft, GROUPS)
    broken = Graft(graft.region, graft.values.clone().index_fill_(0, torch.tensor([0]), torch.inf))
    with pytest.raises(NotFinite, match="a gain is NaN or infinite"):
        group_gains(task, broken, GROUPS)
    with pytest.raises(NotFinite, match="gains hold NaN"):
        split_by_gain(REGION, torch.full((2, 6), torch.nan))
    with pytest.raises(ValueError, match=r"shape \(groups, 6\), got \(2, 5\)"):
        split_by_gain(REGION, torch.zeros(2, 5))
    with pytest.raises(ValueError, match="splits into 2 to 6 parts, got 7"):
        split_by_gain(REGION, torch.zeros(7, 6))
