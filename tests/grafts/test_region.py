"""Regions behave as sets, and `top_k` selects exactly k."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from region_strategies import layouts, quick, regions
from slow_cases import slow

from cl_graft.grafts.region import Layout, Region, overlap_matrix, union
from cl_graft.grafts.selection import top_k

LAYOUT = Layout(("a", "b"), ((2, 3), (4,)))


@quick
@given(st.data())
def test_set_algebra_equals_that_of_dense_masks(data):
    layout = data.draw(layouts())
    a, b = data.draw(regions(layout)), data.draw(regions(layout))
    dense_a, dense_b = a.masks(), b.masks()
    names = layout.names
    assert (a | b) == Region.from_masks({n: dense_a[n] | dense_b[n] for n in names})
    assert (a & b) == Region.from_masks({n: dense_a[n] & dense_b[n] for n in names})
    assert (a - b) == Region.from_masks({n: dense_a[n] & ~dense_b[n] for n in names})
    assert (a <= b) == all(bool((dense_a[n] <= dense_b[n]).all()) for n in names)
    assert len(a) == sum(int(mask.sum()) for mask in dense_a.values())
    assert union([a, b, a], layout=layout) == a | b


@quick
@given(st.data())
def test_overlaps_equal_their_definitions_on_python_sets(data):
    layout = data.draw(layouts())
    a, b = data.draw(regions(layout)), data.draw(regions(layout))
    left, right = set(a.index.tolist()), set(b.index.tolist())
    assert a.jaccard(b) == (len(left & right) / len(left | right) if left | right else 1.0)
    assert a.overlap(b) == (len(left & right) / len(right) if right else None)
    assert overlap_matrix([a, b]) == [[a.overlap(a), a.overlap(b)], [b.overlap(a), b.overlap(b)]]


@quick
@given(st.data())
def test_walking_the_parameters_visits_every_coordinate_once_and_in_order(data):
    region = data.draw(regions(data.draw(layouts())))
    masks = {name: torch.zeros_like(mask) for name, mask in region.masks().items()}
    places = []
    for name, inside, place in region.by_parameter():
        assert len(inside) == place.stop - place.start > 0
        masks[name].view(-1)[inside] = True
        places += range(place.start, place.stop)
    assert Region.from_masks(masks) == region
    assert places == list(range(len(region)))


@quick
@given(st.data())
def test_find_says_where_the_coordinates_of_a_subset_stand(data):
    layout = data.draw(layouts())
    whole = data.draw(regions(layout))
    part = whole & data.draw(regions(layout))
    assert torch.equal(whole.index[whole.find(part)], part.index)


@quick
@given(st.data())
def test_top_k_takes_exactly_k_and_gives_ties_to_the_earlier_coordinate(data):
    layout = data.draw(layouts())
    few_values = st.sampled_from([-float("inf"), -1.0, -0.0, 0.0, 1.0, float("inf")])
    total = layout.total
    flat = torch.tensor(data.draw(st.lists(few_values, min_size=total, max_size=total)))
    scores = dict(zip(layout.names, flat.split(list(layout.sizes)), strict=True))
    scores = {
        n: s.reshape(shape) for (n, s), shape in zip(scores.items(), layout.shapes, strict=True)
    }
    k = data.draw(st.integers(1, total))
    best = sorted(range(total), key=lambda i: (-float(flat[i]), i))[:k]
    assert top_k(scores, k) == Region.of(layout, best)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int64])
@pytest.mark.parametrize("k", [1, 5, 10])
def test_top_k_of_equal_scores_is_the_first_k_coordinates(k, dtype):
    scores = {"a": torch.ones(2, 3, dtype=dtype), "b": torch.ones(4, dtype=dtype)}
    assert top_k(scores, k).index.tolist() == list(range(k))


def test_top_k_compares_scores_across_parameters():
    scores = {"a": torch.tensor([[1.0, 9.0, 2.0], [0.0, 0.0, 0.0]]), "b": torch.arange(4.0) + 5}
    assert top_k(scores, 3).index.tolist() == [1, 8, 9]


def test_top_k_refuses_a_k_that_cannot_be_had_and_nan():
    for k in (0, -1, 11):
        with pytest.raises(ValueError, match=rf"k must be in \[1, 10\], got {k}"):
            top_k({"a": torch.ones(10)}, k)
    with pytest.raises(ValueError, match="1 NaN"):
        top_k({"a": torch.tensor([1.0, float("nan"), 2.0])}, 1)


def test_layout_numbers_coordinates_through_all_parameters_row_by_row():
    assert (LAYOUT.sizes, LAYOUT.starts, LAYOUT.total) == ((6, 4), (0, 6, 10), 10)
    masks = Region.of(LAYOUT, [4, 6]).masks()
    assert masks["a"].nonzero().tolist() == [[1, 1]]
    assert masks["b"].nonzero().tolist() == [[0]]


def test_a_layout_of_nothing_has_one_region_which_is_empty():
    nothing = Layout.of({})
    assert nothing.total == 0
    assert Region.full(nothing) == Region.empty(nothing)
    assert Region.empty(nothing).density == 0.0


def test_region_of_sorts_and_drops_repeats_and_refuses_what_are_no_numbers_in_a_row():
    assert Region.of(LAYOUT, [7, 2, 7]).index.tolist() == [2, 7]
    assert Region.of(LAYOUT, torch.tensor([9, 0], dtype=torch.int32)).index.tolist() == [0, 9]
    for mask in ([True, False, True], torch.tensor([True, False, True])):
        with pytest.raises(TypeError, match="got a boolean mask; pass"):
            Region.of(LAYOUT, mask)
    for numbers in ([1.0, 2.7], [[0, 1], [2, 3]], 3):
        with pytest.raises(TypeError, match="1-d sequence of whole numbers"):
            Region.of(LAYOUT, torch.tensor(numbers))
    with pytest.raises(TypeError, match=r"bool.*float32 for a"):
        Region.from_masks({"a": torch.ones(2)})


def test_full_and_empty_are_the_ends_of_density():
    assert Region.full(LAYOUT).density == 1.0
    assert Region.empty(LAYOUT).density == 0.0
    assert Region.of(LAYOUT, [3]).density == 0.1
    assert union([], layout=LAYOUT) == Region.empty(LAYOUT)


def test_impossible_coordinates_are_refused():
    for index in ([-1], [10], [3, 3], [4, 2]):
        with pytest.raises(ValueError, match="must be"):
            Region(LAYOUT, torch.tensor(index))
    for odd in (torch.tensor([[1]]), torch.tensor([1], dtype=torch.int32)):
        with pytest.raises(TypeError, match="1-d int64"):
            Region(LAYOUT, odd)
    with pytest.raises(ValueError, match="1 of 2 coordinates lie outside"):
        Region.of(LAYOUT, [1, 2]).find(Region.of(LAYOUT, [2, 9]))


def test_regions_of_different_models_do_not_mix():
    whole, other = Region.full(LAYOUT), Region.full(Layout(("a",), ((5,),)))
    for mix in (whole.__or__, whole.find, lambda region: union([whole, region], layout=LAYOUT)):
        with pytest.raises(ValueError, match="regions of different models"):
            mix(other)
    assert whole != other


@pytest.mark.parametrize("kind", ["smooth", "ties", "zeros", *slow("one parameter", "periodic")])
def test_top_k_of_many_scores_is_that_of_a_sort(kind):
    draw = torch.Generator().manual_seed(0)
    sizes = {"a": (1000, 700), "b": (700,), "c": (900, 500)}
    scores = {name: torch.randn(size, generator=draw) for name, size in sizes.items()}
    if kind == "ties":
        scores = {name: score.mul(3).round() for name, score in scores.items()}
    elif kind == "zeros":
        scores = {name: score.relu() for name, score in scores.items()}
        scores["a"].zero_()
    elif kind == "one parameter":
        scores["b"] += 100
    elif kind == "periodic":
        # Exactly where a regular sample never looks.
        flat = scores["a"].view(-1)
        flat[1::5] += 100
    total = sum(score.numel() for score in scores.values())
    flat = torch.cat([score.reshape(-1) for score in scores.values()])
    order = flat.sort(descending=True, stable=True).indices
    for k in (1, 37, 5000, 300_000, total):
        expected = Region.of(Layout.of(scores), order[:k])
        assert top_k(scores, k) == expected, k
