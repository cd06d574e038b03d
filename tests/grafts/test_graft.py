"""Grafts go in and out of a model without changing a bit elsewhere."""

from __future__ import annotations

from contextlib import suppress

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from region_strategies import FRAGILE, TwoLayers, bits, model_bits, quick, regions, use_bits_
from torch import nn

from cl_graft.grafts.graft import (
    Graft,
    extract,
    find_parameters,
    grafted,
    load_,
    overlay,
    snapshot,
    write_,
)
from cl_graft.grafts.region import Layout, Region

DTYPES = list(FRAGILE)


def _layout(model: nn.Module) -> Layout:
    return Layout.of(dict(model.named_parameters()))


def _same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[n], right[n]) for n in left)


@pytest.mark.parametrize("dtype", DTYPES)
def test_grafted_gives_the_model_back_bit_for_bit_after_an_exception(dtype):
    model = TwoLayers().to(dtype)
    use_bits_(model, dtype)
    before = model_bits(model)
    region = Region.full(_layout(model))
    with suppress(KeyError), grafted(model, Graft(region, torch.ones(len(region)))):
        assert all(bool((p == 1).all()) for p in model.parameters())
        raise KeyError("stop")
    assert _same(model_bits(model), before)


@pytest.mark.parametrize("dtype", DTYPES)
def test_write_after_extract_is_exact_for_negative_zero_and_nan_payloads(dtype):
    model, other = TwoLayers().to(dtype), TwoLayers(seed=1).to(dtype)
    use_bits_(model, dtype)
    graft = extract(model, Region.full(_layout(model)))
    assert graft.values.dtype == dtype
    write_(other, graft)
    assert _same(model_bits(other), model_bits(model))
    assert graft.same_bits(extract(other, graft.region))


@quick
@given(st.data())
def test_write_changes_its_region_and_nothing_else(data):
    model = TwoLayers()
    region = data.draw(regions(_layout(model)))
    before = {name: tensor.clone() for name, tensor in model.named_parameters()}
    graft = Graft(region, torch.arange(len(region), dtype=torch.float32) + 100)
    write_(model, graft)
    assert graft.same_bits(extract(model, region))
    for name, mask in region.masks().items():
        after = dict(model.named_parameters())[name]
        assert torch.equal(bits(after)[~mask], bits(before[name])[~mask])
        assert bool((after[mask] >= 100).all())


@quick
@given(st.data())
def test_a_graft_split_in_two_joins_to_itself(data):
    model = TwoLayers()
    layout = _layout(model)
    whole = extract(model, data.draw(regions(layout)))
    part = whole.region & data.draw(regions(layout))
    pieces = [whole.on(whole.region - part), whole.on(part)]
    assert overlay(pieces, layout=layout, dtype=torch.float32).same_bits(whole)


def test_of_grafts_that_share_a_coordinate_the_last_one_stands_and_none_join_to_none():
    layout = _layout(TwoLayers())
    first = Graft(Region.of(layout, [1, 2]), torch.tensor([1.0, 2.0]))
    last = Graft(Region.of(layout, [0, 2]), torch.tensor([3.0, 4.0]))
    joined = overlay([first, last], layout=layout, dtype=torch.float32)
    assert joined.region == Region.of(layout, [0, 1, 2])
    assert joined.values.tolist() == [3.0, 1.0, 4.0]
    empty = overlay([], layout=layout, dtype=torch.bfloat16)
    assert empty.same_bits(Graft(Region.empty(layout), torch.empty(0, dtype=torch.bfloat16)))


def test_parameters_of_different_dtypes_are_read_in_the_widest_and_written_back_exactly():
    model = TwoLayers()
    model.second.to(torch.bfloat16)
    before = model_bits(model)
    graft = extract(model, Region.full(_layout(model)))
    assert graft.values.dtype == torch.float32
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    write_(model, graft)
    assert _same(model_bits(model), before)


def test_same_bits_tells_zeros_of_different_sign_and_values_of_different_dtype_apart():
    region = Region.of(Layout(("a",), ((3,),)), [1])
    zero = Graft(region, torch.tensor([0.0]))
    assert not zero.same_bits(Graft(region, torch.tensor([-0.0])))
    assert not zero.same_bits(Graft(region, torch.tensor([0.0], dtype=torch.float64)))
    assert not zero.same_bits(Graft(Region.of(region.layout, [2]), torch.tensor([0.0])))
    nan = Graft(region, torch.tensor([float("nan")]))
    assert nan.same_bits(nan)


def test_snapshot_and_load_are_inverse():
    model, other = TwoLayers(), TwoLayers(seed=1)
    kept = snapshot(dict(model.named_parameters()))
    load_(model, snapshot(dict(other.named_parameters())))
    assert _same(model_bits(model), model_bits(other))
    load_(model, kept)
    assert _same(model_bits(model), model_bits(TwoLayers()))


def test_a_graft_needs_one_value_a_coordinate():
    with pytest.raises(ValueError, match="2 coordinates, values of shape"):
        Graft(Region.of(Layout(("a",), ((3,),)), [0, 1]), torch.zeros(3))


def test_a_model_with_other_parameters_or_strides_is_refused():
    with pytest.raises(ValueError, match="no parameter 'gone'"):
        find_parameters(TwoLayers(), Layout(("gone",), ((3,),)))
    with pytest.raises(ValueError, match=r"first\.bias must have shape \(7,\), got \(6,\)"):
        find_parameters(TwoLayers(), Layout(("first.bias",), ((7,),)))
    model = nn.Linear(3, 2)
    model.weight = nn.Parameter(torch.zeros(3, 2).T)
    with pytest.raises(ValueError, match="weight is not contiguous"):
        extract(model, Region.full(_layout(model)))
