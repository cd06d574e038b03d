"""Drawn regions are stored as a seed, and come back as the same region or not at all."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from region_strategies import quick
from safetensors.torch import load_file
from stored_banks import base_identity, entry_of, same_bank

from cl_graft.errors import FutureVersion
from cl_graft.grafts.bank import GraftBank
from cl_graft.grafts.drawn_order import find_coordinates, find_places
from cl_graft.grafts.region import Layout, Region, union
from cl_graft.storage import load_bank, save_bank, serialization
from cl_graft.storage.elias_fano import packed_size
from cl_graft.storage.serialization import drawn_record, read_drawn

LAYOUT = Layout(("block.weight", "block.bias"), ((2_000, 500), (500,)))
NONE = Region.empty(LAYOUT)
SIZE = 20_000


def first_places(seed: int, *, without: Region = NONE) -> Region:
    order = find_coordinates(torch.arange(2 * SIZE), seed=seed, total=LAYOUT.total)
    return Region.of(LAYOUT, order[~torch.isin(order, without.index)][:SIZE])


def bank_of_draws(tasks: int = 3) -> GraftBank:
    bank = GraftBank(LAYOUT, base_identity())
    for seed in range(tasks):
        owned = union([entry.owned.region for entry in bank.entries], layout=LAYOUT)
        region = first_places(seed, without=owned)
        entry = entry_of(bank, region, task=f"task{seed}")
        metadata = {**entry.metadata, "localizer": "random", "region_seed": seed}
        bank = bank.append(replace(entry, metadata=metadata))
    return bank


@quick
@given(st.integers(1, 3_000), st.integers(0, 2**63 - 1))
def test_an_order_has_every_coordinate_once_and_a_place_leads_back(total, seed):
    places = torch.arange(total)
    order = find_coordinates(places, seed=seed, total=total)
    assert torch.equal(order.sort().values, places)
    assert torch.equal(find_places(order, seed=seed, total=total), places)


def test_an_order_stays_what_banks_were_written_with():
    order = find_coordinates(torch.arange(6), seed=7, total=106_202_880)
    assert order.tolist() == [62186941, 24792612, 16519503, 43084415, 44488211, 96848476]


@pytest.mark.parametrize("total", [2**20, 2**20 + 1, 1_500_000])
def test_the_first_places_lie_as_draws_without_replacement_do(total):
    size, bins = 50_000, 100
    regions = []
    for seed in range(2):
        order = find_coordinates(torch.arange(size), seed=seed, total=total)
        for part in (order * bins // total, order % bins):
            counts = part.bincount(minlength=bins)
            chi = (counts - size / bins).square().sum() / (size / bins)
            assert 50 < chi < 160  # its mean is 99, its deviation 14
        gaps = order.sort().values.diff()
        assert gaps.double().std() == pytest.approx(total / size, rel=0.05)
        regions.append(set(order.tolist()))
    assert len(regions[0] & regions[1]) == pytest.approx(size**2 / total, rel=0.12)


def test_a_bank_of_draws_comes_back_from_seeds_without_an_index(tmp_path):
    bank = bank_of_draws()
    save_bank(bank, tmp_path)
    assert same_bank(load_bank(tmp_path), bank)
    files = [load_file(path) for path in (tmp_path / "entries").iterdir()]
    assert not any("owned.index" in file for file in files)
    passed_over = sorted(file["owned.passed_over"].nbytes for file in files)
    assert passed_over[0] == 0  # no entry was before the first
    assert passed_over[2] < packed_size(SIZE, LAYOUT.total) / 10


def test_a_region_that_its_seed_does_not_draw_keeps_its_index(tmp_path):
    bank = GraftBank(LAYOUT, base_identity())
    entry = entry_of(bank, first_places(1))
    bank = bank.append(replace(entry, metadata={**entry.metadata, "region_seed": 2}))
    save_bank(bank, tmp_path)
    assert same_bank(load_bank(tmp_path), bank)
    assert ["owned.index" in load_file(p) for p in (tmp_path / "entries").iterdir()] == [True]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"seed": "5"}, "seed must be int"),
        ({"places": SIZE - 1}, f"{SIZE} coordinates cannot be of {SIZE - 1} places"),
        ({"places": 2**40}, f"cannot be of {2**40} places"),
        ({"places": 500_000}, "would be stored by an index"),
        ({"places": SIZE + 40}, "take .* bytes, got"),
    ],
)
def test_a_draw_that_was_changed_is_refused(changes, said):
    tensors = {"owned.values": torch.ones(SIZE)}
    record = drawn_record(first_places(1), 1, tensors)
    assert read_drawn(record, SIZE, tensors, LAYOUT, "e") == first_places(1)
    with pytest.raises((ValueError, TypeError), match=said):
        read_drawn(record | changes, SIZE, tensors, LAYOUT, "e")
    with pytest.raises(ValueError, match="or lack values"):
        read_drawn(record, SIZE, {**tensors, "owned.values": torch.ones(3)}, LAYOUT, "e")


@pytest.mark.parametrize(
    ("rule", "said"),
    [("mixed bits 2", "this package draws by 'mixed bits 2'"), ("mixed bits 1", "from its seed")],
)
def test_a_draw_of_another_version_is_no_damage(tmp_path, monkeypatch, rule, said):
    save_bank(bank_of_draws(tasks=1), tmp_path)
    monkeypatch.setattr(serialization, "RULE", rule)
    draw = serialization.find_coordinates
    monkeypatch.setattr(
        serialization, "find_coordinates", lambda places, **more: draw(places + 1, **more)
    )
    with pytest.raises(FutureVersion, match=f"{tmp_path}.*{said}") as told:
        load_bank(tmp_path)
    assert "forget" not in str(told.value)
