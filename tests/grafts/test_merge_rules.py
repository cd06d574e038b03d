"""Merging sparse grafts is what the published rules are on dense weights, re-derived here."""

import pytest
import torch
from torch import nn

from cl_graft.errors import InputError
from cl_graft.grafts.graft import Graft, extract, write_
from cl_graft.grafts.merge_rules import MERGES, TaskVectors, dare, merge_grafts
from cl_graft.grafts.region import Layout, Region

SETTINGS = {"ties": {"keep": 1.0}, "dare": {"drop": 0.0}}
TOTAL = 5 * 4 + 5


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.Linear(4, 5)


def parameters(model):
    return dict(model.named_parameters())


def draw(model, seed, count=12):
    """A graft on a random region."""
    generator = torch.Generator().manual_seed(seed)
    layout = Layout.of(parameters(model))
    index = torch.randperm(TOTAL, generator=generator)[:count].sort().values
    return Graft(Region(layout, index), torch.randn(count, generator=generator))


def dense(graft, model):
    """The base moved by a graft, minus the base, over all coordinates."""
    base = torch.cat([p.detach().flatten() for p in model.parameters()]).double()
    moved = base.clone()
    moved[graft.region.index] = graft.values.double()
    return moved - base


def merged(model, grafts, rule, **settings):
    """The merged vector over all coordinates."""
    own = SETTINGS.get(rule, {}) | settings
    return dense(merge_grafts(grafts, parameters(model), rule=rule, **own), model)


@pytest.mark.parametrize("rule", MERGES)
def test_merging_one_graft_is_that_graft(model, rule):
    graft = draw(model, 1)
    found = merge_grafts([graft], parameters(model), rule=rule, **SETTINGS.get(rule, {}))
    assert found.same_bits(graft)


@pytest.mark.parametrize("rule", sorted(set(MERGES) - {"task_arithmetic", "dare"}))
def test_merging_equal_grafts_is_that_graft(model, rule):
    graft = draw(model, 1)
    found = merge_grafts([graft] * 4, parameters(model), rule=rule, **SETTINGS.get(rule, {}))
    assert found.same_bits(graft)


@pytest.mark.parametrize("rule", sorted(set(MERGES) - {"average"}))
def test_disjoint_grafts_are_written_side_by_side(model, rule):
    graft = draw(model, 1)
    one, two = (graft.on(Region(graft.region.layout, part)) for part in graft.region.index.chunk(2))
    found = merge_grafts([two, one], parameters(model), rule=rule, **SETTINGS.get(rule, {}))
    assert found.same_bits(graft)


@pytest.mark.parametrize("rule", sorted(set(MERGES) - {"dare"}))
def test_the_order_of_grafts_does_not_matter(model, rule):
    grafts = [draw(model, seed) for seed in range(4)]
    torch.testing.assert_close(
        merged(model, grafts[::-1], rule), merged(model, grafts, rule), rtol=0, atol=1e-6
    )


def test_the_average_is_that_of_the_models(model):
    grafts = [draw(model, seed) for seed in range(3)]
    expected = sum(dense(graft, model) for graft in grafts) / 3
    torch.testing.assert_close(merged(model, grafts, "average"), expected, rtol=0, atol=1e-6)


def test_task_arithmetic_adds_scaled_vectors(model):
    grafts = [draw(model, seed) for seed in range(3)]
    expected = 0.3 * sum(dense(graft, model) for graft in grafts)
    found = merged(model, grafts, "task_arithmetic", coefficient=0.3)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("keep", [0.25, 0.5, 1.0])
def test_ties_is_the_published_rule_on_dense_vectors(model, keep):
    grafts = [draw(model, seed) for seed in range(4)]
    rows = []
    for graft in grafts:
        row = dense(graft, model)
        rows.append(row * (row.abs() >= row.abs().topk(round(keep * len(graft))).values[-1]))
    expected = torch.zeros(TOTAL, dtype=torch.float64)
    for place in range(TOTAL):
        column = [float(row[place]) for row in rows]
        sign = 1 if sum(column) > 0 else -1
        agreeing = [value for value in column if value * sign > 0]
        expected[place] = sum(agreeing) / len(agreeing) if agreeing else 0.0
    torch.testing.assert_close(
        merged(model, grafts, "ties", keep=keep), expected, rtol=0, atol=1e-6
    )


def vectors(rows):
    """Task vectors by hand on a base of zeros."""
    deltas = torch.tensor(rows, dtype=torch.float64)
    layout = Layout(("weight",), ((deltas.shape[1],),))
    region = Region(layout, torch.arange(deltas.shape[1]))
    return TaskVectors(Graft(region, torch.zeros(len(region))), deltas, deltas != 0)


def test_signs_are_elected_by_their_weight_and_not_by_their_number():
    three = vectors([[5.0, 1.0, 2.0, 0.0], [-1.0, 1.0, -2.0, 0.0], [-1.0, -3.0, 0.0, 4.0]])
    found = MERGES["ties"].rule(three, keep=1.0)
    assert found.tolist() == [5.0, -3.0, 0.0, 4.0]


def test_trimming_keeps_exactly_the_share_and_earlier_coordinates_under_ties():
    found = MERGES["ties"].rule(vectors([[1.0, -1.0, 1.0, 1.0, 0.5]]), keep=0.4)
    assert found.tolist() == [1.0, -1.0, 0.0, 0.0, 0.0]


def test_the_largest_move_wins_whatever_its_sign():
    three = vectors([[5.0, 1.0, 2.0], [-6.0, 1.0, -2.0], [-1.0, -3.0, 0.0]])
    assert MERGES["magmax"].rule(three).tolist() == [-6.0, -3.0, 2.0]


def test_dropping_leaves_the_expectation():
    one = vectors([[1.0] * 4000, [2.0] * 4000])
    found = dare(one, drop=0.75, generator=torch.Generator().manual_seed(0))
    assert set(found.tolist()) == {0.0, 4.0, 8.0, 12.0}
    assert float(found.mean()) == pytest.approx(3.0, abs=4 * float(found.std()) / 4000**0.5)
    share = float((found == 0).double().mean())
    assert share == pytest.approx(0.75**2, abs=0.04)


def test_what_is_dropped_is_a_function_of_the_seed(model):
    grafts = [draw(model, seed) for seed in range(3)]
    first, again, other = (merged(model, grafts, "dare", drop=0.5, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_stitching_averages_where_regions_overlap(model):
    grafts = [draw(model, seed) for seed in range(3)]
    held = sum(graft.region.masks()["weight"].double() for graft in grafts)
    added = sum(dense(graft, model)[: 5 * 4].view(5, 4) for graft in grafts)
    found = merged(model, grafts, "localize_and_stitch")[: 5 * 4].view(5, 4)
    torch.testing.assert_close(found, added / held.clamp(min=1), rtol=0, atol=1e-6)


def test_a_merged_graft_is_written_as_any_other(model):
    grafts = [draw(model, seed) for seed in range(3)]
    found = merge_grafts(grafts, parameters(model), rule="average")
    write_(model, found)
    assert extract(model, found.region).same_bits(found)


def test_half_precision_stays_half(model):
    model.to(torch.bfloat16)
    graft = draw(model, 1)
    graft = Graft(graft.region, graft.values.to(torch.bfloat16))
    found = merge_grafts([graft], parameters(model), rule="task_arithmetic")
    assert found.same_bits(graft)


def test_what_cannot_be_merged_is_refused(model):
    graft = draw(model, 1)
    base = parameters(model)
    with pytest.raises(InputError, match=r"no rule of merging 'tie'.*'ties'"):
        merge_grafts([graft], base, rule="tie")
    with pytest.raises(ValueError, match="at least one graft"):
        merge_grafts([], base, rule="average")
    for wrong in ({"rule": "ties", "keep": 0.0}, {"rule": "dare", "drop": 1.0}):
        with pytest.raises(ValueError, match="must be"):
            merge_grafts([graft], base, **wrong)
