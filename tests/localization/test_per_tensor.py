"""Rankings in which every tensor gives its share, and rules that know one kind of parameter."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from cl_graft.errors import InputError, NotFinite
from cl_graft.grafts.region import Layout, Region
from cl_graft.grafts.selection import top_k
from cl_graft.localization import localize
from cl_graft.localization.localizer_inputs import LocalizerInputs
from cl_graft.localization.parameter_subsets import biases, layer_norms
from cl_graft.localization.ranking import rank_by_tensor
from cl_graft.runtime.seeding import generator

SIZES = st.lists(st.integers(1, 40), min_size=1, max_size=6)


def drawn(sizes, seed=0):
    draw = generator(seed, "scores")
    return {str(i): torch.randint(0, 9, (n,), generator=draw).float() for i, n in enumerate(sizes)}


@given(SIZES, st.floats(0, 1))
@settings(max_examples=60)
def test_the_published_region_is_the_first_part_of_the_ranking(sizes, density):
    """Code that takes the top int(density·n) of every tensor takes the first Σ int(density·n)."""
    scores = drawn(sizes)
    published = {}
    for name, tensor in scores.items():
        count = int(density * tensor.numel())
        mask = torch.zeros_like(tensor, dtype=torch.bool)
        if count:
            mask = top_k({name: tensor}, count).masks()[name]
        published[name] = mask
    expected = Region.from_masks(published)
    if len(expected):
        ranking = rank_by_tensor(scores, depth=sum(sizes))
        assert ranking.top(len(expected)) == expected


@given(SIZES, st.data())
@settings(max_examples=60)
def test_any_depth_is_the_beginning_of_the_whole_ranking(sizes, data):
    scores = drawn(sizes)
    whole = rank_by_tensor(scores, depth=sum(sizes)).order
    depth = data.draw(st.integers(1, sum(sizes)))
    assert torch.equal(rank_by_tensor(scores, depth=depth).order, whole[:depth])
    assert sorted(whole.tolist()) == list(range(sum(sizes)))


def test_no_tensor_gives_a_coordinate_more_than_its_share_rounded_up():
    sizes = [200, 50, 10, 3]
    ranking = rank_by_tensor(drawn(sizes), depth=sum(sizes))
    for k in (5, 60, 131, 263):
        given_by = ranking.top(k).masks()
        for name, size in zip(given_by, sizes, strict=True):
            assert int(given_by[name].sum()) <= math.ceil(size * k / sum(sizes)) + 1
    assert all(small <= large for small, large in pairwise(map(ranking.top, (5, 60, 131, 263))))


def test_scores_that_are_no_numbers_cannot_be_ranked_by_tensor():
    scores = {"a": torch.tensor([1.0, float("nan")]), "b": torch.ones(3)}
    with pytest.raises(NotFinite, match="1 NaN"):
        rank_by_tensor(scores, depth=5)
    with pytest.raises(ValueError, match=r"depth must be in \[1, 5\], got 6"):
        rank_by_tensor(scores, depth=6)


def normed_inputs():
    draw = generator(0, "normed")
    model = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 3))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draw))
    x = torch.randn(32, 6, generator=draw)
    targets = torch.randint(3, (32,), generator=draw)

    def losses(step):
        part = slice(8 * step % 32, 8 * step % 32 + 8)
        return [lambda: nn.functional.cross_entropy(model(x[part]), targets[part])]

    return LocalizerInputs(
        model, dict(model.named_parameters()), {}, losses, lambda: 0, lambda: 0, 0
    )


@pytest.mark.parametrize(
    ("name", "rule", "kept"),
    [
        ("bias_only", biases, ["0.bias", "1.bias", "3.bias"]),
        ("layer_norm_only", layer_norms, ["1.weight", "1.bias"]),
    ],
)
def test_a_rule_takes_the_steepest_of_its_kind_and_nothing_else(name, rule, kept):
    inputs = normed_inputs()
    allowed = Region.full(Layout.of(rule(inputs.model, inputs.parameters))).within(inputs.layout)
    full = {n: torch.ones_like(p, dtype=torch.bool) * (n in kept) for n, p in inputs.base.items()}
    assert allowed == Region.from_masks(full)
    ranking = localize(inputs, name, k=5, steps=4)
    assert len(ranking.top(5)) == 5
    assert Region.of(inputs.layout, ranking.order) == allowed
    steepest = localize(inputs, "base_gradient", k=5, steps=4)
    assert ranking.top(5) == steepest.top(5, without=Region.full(inputs.layout) - allowed)
    with pytest.raises(ValueError, match=rf"k must be in \[1, {len(allowed)}\]"):
        localize(inputs, name, k=len(allowed) + 1)


def test_a_model_without_the_kind_is_refused():
    model = nn.Linear(3, 2, bias=False)
    with pytest.raises(InputError, match="no biases"):
        biases(model, dict(model.named_parameters()))
