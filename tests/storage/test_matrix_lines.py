"""Whole columns and rows take a few bytes each in a file, and come back as the same region."""

from __future__ import annotations

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from region_strategies import quick
from stored_banks import base_identity, entry_of, same_bank

from cl_graft.errors import DamagedFile
from cl_graft.grafts.bank import GraftBank
from cl_graft.grafts.region import Layout, Region
from cl_graft.storage import load_bank, save_bank
from cl_graft.storage.elias_fano import pack_indices, packed_size
from cl_graft.storage.files import dump_json
from cl_graft.storage.matrix_lines import largest_index
from cl_graft.storage.serialization import read_region, region_record

WIDE = Layout(("bias", "up", "down"), ((96,), (384, 96), (96, 384)))


@st.composite
def regions_with_lines(draw: st.DrawFn) -> Region:
    """Draw columns and rows of matrices, any share of them, among other coordinates."""
    sides = st.sampled_from([1, 2, 31, 32, 40])
    shapes = draw(st.lists(st.lists(sides, min_size=1, max_size=3), min_size=1, max_size=3))
    layout = Layout(tuple(f"p{n}" for n in range(len(shapes))), tuple(map(tuple, shapes)))
    seeds = torch.Generator().manual_seed(draw(st.integers(0, 2**30)))
    share = st.sampled_from([0.0, 0.1, 0.9, 1.0])
    masks = {}
    for name, shape in zip(layout.names, layout.shapes, strict=True):
        mask = torch.rand(shape, generator=seeds) < draw(st.sampled_from([0.0, 0.02, 0.5]))
        flat = mask.view(shape[0], -1)
        flat[torch.rand(shape[0], generator=seeds) < draw(share)] = True
        flat[:, torch.rand(flat.shape[1], generator=seeds) < draw(share)] = True
        masks[name] = mask
    return Region.from_masks(masks)


def columns(layout: Layout, name: str, numbers: list[int]) -> Region:
    masks = Region.empty(layout).masks()
    masks[name][:, numbers] = True
    return Region.from_masks(masks)


def index_bytes(region: Region) -> int:
    tensors: dict[str, torch.Tensor] = {}
    region_record(region, "", tensors)
    return sum(tensor.nbytes for tensor in tensors.values())


@quick
@given(regions_with_lines())
def test_a_region_comes_back_and_takes_no_more_bytes_than_its_packed_index(region):
    tensors: dict[str, torch.Tensor] = {}
    count = region_record(region, "a", tensors)
    assert read_region(count, "a", tensors, region.layout) == region
    assert index_bytes(region) <= packed_size(len(region), region.layout.total)


def test_columns_and_rows_take_four_bytes_each():
    down = columns(WIDE, "down", list(range(0, 384, 7)))
    rows = Region.of(WIDE, torch.arange(96 + 96 * 10, 96 + 96 * 50))
    assert index_bytes(down) == 4 * 55
    assert index_bytes(rows) == 4 * 40
    few = Region.of(WIDE, [3, 7, 96 + 90 * 96])
    assert index_bytes(down | rows | few) == 4 * 95 + packed_size(3, WIDE.total)
    assert packed_size(len(down), WIDE.total) > 10 * index_bytes(down)
    # A whole matrix: its 96 columns or rows, whichever are fewer.
    assert index_bytes(Region.of(WIDE, torch.arange(96, 96 + 384 * 96))) == 4 * 96


def test_what_has_no_whole_columns_or_rows_is_stored_as_it_always_was():
    region = columns(WIDE, "down", [5, 6, 90])
    region = Region(WIDE, region.index[3:])  # without the first row
    tensors: dict[str, torch.Tensor] = {}
    region_record(region, "a", tensors)
    assert tensors.keys() == {"a.index"}
    assert torch.equal(tensors["a.index"], pack_indices(region.index, total=WIDE.total))


@pytest.mark.parametrize("name", ["up", "down"])
@pytest.mark.parametrize("size", [50, 51, 96 * 3, 4_999, 5_000, 30_000])
def test_the_estimate_of_bytes_is_kept_and_not_far_off(name, size):
    """A budget that ends inside a line cuts that one off."""
    number, transposed = WIDE.names.index(name), size % 2 == 0
    order = torch.arange(384 * 96).view(WIDE.shapes[number])
    region = Region.of(
        WIDE, WIDE.starts[number] + (order.T if transposed else order).flatten()[:size]
    )
    most = largest_index(len(region), WIDE)
    cut = packed_size(384, WIDE.total)
    assert index_bytes(region) <= most <= 4 * -(-len(region) // 96) + cut + 96


def damaged(change) -> tuple[int, dict[str, torch.Tensor]]:
    region = columns(WIDE, "down", [3, 4, 50]) | Region.of(WIDE, [7])
    tensors: dict[str, torch.Tensor] = {}
    count = region_record(region, "a", tensors)
    assert len(tensors["a.lines"]) == 3
    return change(tensors) or count, tensors


def lines(*numbers: int):
    def change(tensors: dict[str, torch.Tensor]) -> None:
        tensors["a.lines"] = torch.tensor(numbers, dtype=torch.int32)

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lines(483, 484, 2**30), r"must increase and lie in \[0, 960\)"),
        (lines(-1, 484, 530), r"must increase and lie in \[0, 960\)"),
        (lines(484, 483, 530), "must increase"),
        (lines(483, 483, 530), "must increase"),
        (lines(483, 484), "coordinates take"),
        (lines(*range(480, 530)), "hold 4800 coordinates, and 289 are stated"),
        (lambda t: t.update({"a.lines": t["a.lines"].long()}), "must be 1-d int32"),
        (lambda t: t.update({"a.lines": t["a.lines"][None]}), "must be 1-d int32"),
        (lambda t: t.update({"a.values": torch.ones(9)}), "289 coordinates need as many values"),
        (lambda t: 10**15, "cannot hold"),
        (lambda t: -1, "hold 288 coordinates, and -1 are stated"),
    ],
)
def test_lines_that_no_region_has_are_refused(change, said):
    count, tensors = damaged(change)
    with pytest.raises(ValueError, match=said):
        read_region(count, "a", tensors, WIDE)


def test_a_coordinate_of_a_column_that_is_listed_again_is_refused():
    count, tensors = damaged(lambda t: None)
    again = Region.of(WIDE, [96 + 384 * 96 + 3])  # the first of column 3
    tensors["a.index"] = pack_indices(again.index, total=WIDE.total)
    with pytest.raises(ValueError, match="listed a second time"):
        read_region(count, "a", tensors, WIDE)


def column_bank() -> GraftBank:
    bank = GraftBank(WIDE, base_identity())
    for task, numbers in (("a", [1, 2, 3]), ("b", [2, 3, 9]), ("c", [1, 2, 3])):
        bank = bank.append(entry_of(bank, columns(WIDE, "down", numbers), task=task))
    return bank


def test_a_bank_of_columns_comes_back(tmp_path):
    save_bank(column_bank(), tmp_path)
    assert same_bank(load_bank(tmp_path), column_bank())


@pytest.mark.parametrize(
    ("position", "key", "value"), [(0, "size", 289), (2, "size", 481), (1, "bytes", 95)]
)
def test_an_entry_states_no_more_coordinates_than_values_bear_out(tmp_path, position, key, value):
    """Columns and rows take next to no bytes, so a false count could fill the memory."""
    save_bank(column_bank(), tmp_path)
    index = json.loads((tmp_path / "bank.json").read_text())
    index["entries"][position][key] = value
    format = index.pop("format")
    (tmp_path / "bank.json").write_bytes(
        dump_json(
            {k: v for k, v in index.items() if k not in ("checksum", "version")}, format=format
        )
    )
    with pytest.raises(DamagedFile, match=r"owns \d+ of \d+ coordinates|fewer bytes than its 96"):
        load_bank(tmp_path)
