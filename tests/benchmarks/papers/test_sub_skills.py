"""Regions are split by gain, and grafts taken apart by groups of rows."""

import pytest
import torch
from papers.measurements import Measurement
from papers.region_split import group_gains, split_by_gain
from papers.sub_skills import BANKING, _find_groups, conclude, lead_of_own_parts
from small_tasks import make_task
from smoke_benches import smoke_bench

from cl_graft.grafts.graft import Graft, extract
from cl_graft.grafts.region import Layout, Region, union
from cl_graft.runtime.seeding import generator

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


def test_parts_are_disjoint_of_equal_sizes_and_their_union_is_the_region():
    task, graft = task_and_graft()
    parts = split_by_gain(graft.region, group_gains(task, graft, GROUPS))
    assert sorted(map(len, parts)) == [55, 56, 56]
    assert union(parts, layout=graft.region.layout) == graft.region


def _at(values, region):
    flat = torch.cat([values[name].reshape(-1) for name in region.layout.names])
    return flat[region.index]


def test_a_gain_is_the_move_times_the_dense_gradient():
    task, graft = task_and_graft()
    task.model.eval()
    move = graft.values - extract(task.model, graft.region).values
    found = group_gains(task, graft, GROUPS, points=[0.0])
    for gains, rows in zip(found, GROUPS, strict=True):
        gradients = torch.autograd.grad(task.loss(list(rows)), list(task.parameters.values()))
        dense = dict(zip(task.parameters, gradients, strict=True))
        assert torch.allclose(gains, -move * _at(dense, graft.region), atol=1e-6)


REGION = Region.of(Layout(("weight",), ((9,),)), [0, 1, 2, 4, 5, 8])


def test_a_group_with_a_steep_loss_does_not_get_everything():
    gains = torch.tensor([[6.0, 5.0, 4.0, 3.0, 2.0, 1.0], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]])
    for scale in (1.0, 1000.0):
        first, second = split_by_gain(REGION, gains * torch.tensor([[scale], [1.0]]))
        assert (first.index.tolist(), second.index.tolist()) == ([0, 1, 2], [4, 5, 8])


def test_the_lead_is_that_of_own_parts_over_the_others_of_a_column():
    shares = [[0.9, 0.1, None], [0.3, 0.5, None], [0.1, 0.1, None]]
    assert lead_of_own_parts(shares) == pytest.approx(((0.9 - 0.2) + (0.5 - 0.1)) / 2)
    assert lead_of_own_parts([[0.4, 0.4], [0.4, 0.4]]) == pytest.approx(0.0)
    assert lead_of_own_parts([[None, None], [None, None]]) is None


def cell(own, chance, *, parts=(0.6, 0.2), others=(0.1, 0.3), at_random=(0.3, 0.5)):
    """A cell of two groups, as the experiment measures it."""
    leads = (("split by gain", own), ("random splits", chance))
    groups = ("cards", "late")
    yield from (Measurement("banking", m, "own part above others, loss", v) for m, v in leads)
    for place, (group, other) in enumerate(zip(groups, reversed(groups), strict=True)):
        values = {
            f"part for {group}": parts[place],
            f"part for {other}": others[place],
            "random part": at_random[place],
        }
        for method, value in values.items():
            yield Measurement(f"banking: {group}", method, "relative gain, loss", value)


def test_parts_are_compared_with_random_ones_of_the_same_cell():
    cells = [
        list(cell(0.5, 0.1)),
        list(cell(0.4, -0.1, parts=(0.7, 0.2))),
        list(cell(0.7, 0.1, parts=(0.8, 0.2))),
    ]
    found = {}
    for m in conclude(cells, []):
        assert (m.task, m.measure) == ("banking", "mean relative gain, loss")
        found.setdefault(m.method, []).append(m.value)
    assert found["own parts"] == pytest.approx([0.4, 0.45, 0.5])
    assert found["other parts"] == pytest.approx([0.2] * 3)
    assert found["random parts"] == pytest.approx([0.4] * 3)
    assert found["own above others"] == pytest.approx([0.5])  # of 0.4, 0.5 and 0.6
    half = 4.303 * 0.1 / 3**0.5
    assert found["own above others, 95 % from"] == pytest.approx([0.5 - half], abs=1e-3)
    assert found["own above others, p"] == pytest.approx([0.0131], abs=2e-3)
    assert found["own above random"] == pytest.approx([0.05])
    assert list(conclude([*cells, []], [])) == list(conclude(cells, []))
    two = {m.method for m in conclude(cells[:2], [])}  # which have no interval
    assert two == {
        "own parts",
        "other parts",
        "random parts",
        "own above others",
        "own above random",
    }


def test_groups_are_rows_of_one_kind_in_training_and_test(tiny_bert, tmp_path):
    bench = smoke_bench("sub_skills", tiny_bert, tmp_path)
    encoded = bench.stream.tasks[0]
    groups = _find_groups(bench, 0)
    assert [group.name for group in groups] == list(BANKING)
    for group in groups:
        for split, rows, places in (
            ("train", encoded.task.train, group.train),
            ("test", encoded.task.test, group.test.tolist()),
        ):
            labels = {int(rows[int(encoded.rows[split][place])].label) for place in places}
            assert {encoded.task.label_names[label] for label in labels} == {*BANKING[group.name]}
