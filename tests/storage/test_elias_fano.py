"""Packed coordinates are small, lossless, and checked when they are read."""

from __future__ import annotations

import math
from contextlib import suppress

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from region_strategies import quick

from cl_graft.grafts.region import Layout, Region
from cl_graft.storage.elias_fano import pack_indices, packed_size, unpack_indices


@quick
@given(st.data())
def test_packed_coordinates_come_back_and_have_the_stated_size(data):
    total = data.draw(st.integers(0, 300) | st.integers(2**20, 2**62))
    numbers = data.draw(st.sets(st.integers(0, total - 1), max_size=60)) if total else set()
    index = torch.tensor(sorted(numbers), dtype=torch.int64)
    packed = pack_indices(index, total=total)
    assert len(packed) == packed_size(len(index), total)
    assert torch.equal(unpack_indices(packed, count=len(index), total=total), index)
    if numbers:
        bound = len(index) * (3 + max(0.0, math.log2(total / len(index)))) + 16
        assert 8 * len(packed) <= bound


@quick
@given(st.data())
def test_damaged_coordinates_decode_to_an_error_or_to_a_valid_region(data):
    total = data.draw(st.integers(1, 5000))
    numbers = data.draw(st.sets(st.integers(0, total - 1), min_size=1, max_size=40))
    index = torch.tensor(sorted(numbers))
    packed = pack_indices(index, total=total)
    bit = data.draw(st.integers(0, 8 * len(packed) - 1))
    packed[bit // 8] ^= 1 << (bit % 8)
    with suppress(ValueError):
        decoded = unpack_indices(packed, count=len(index), total=total)
        assert len(Region(Layout(("a",), ((total,),)), decoded)) == len(index)
        assert not torch.equal(decoded, index)


def test_sizes_that_the_data_does_not_bear_out_are_refused_before_allocation():
    packed = pack_indices(torch.tensor([1, 50, 99]), total=100)
    for count, total in [(4, 100), (2, 100), (10**15, 10**16), (3, 2), (-1, 5), (3, 2**63)]:
        with pytest.raises(ValueError, match="coordinates"):
            unpack_indices(packed, count=count, total=total)
