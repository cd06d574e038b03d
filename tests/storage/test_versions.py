"""Stored files of the format are read bit for bit, written byte for byte, and grown."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from storage.golden_banks import stored_bank, stored_graft
from stored_banks import content, same_bank, same_tensor

from cl_graft.grafts.bank import Entry
from cl_graft.grafts.graft import Graft
from cl_graft.grafts.region import Region
from cl_graft.storage import append_entry, load_bank, load_graft, save_bank, save_graft

STORED = Path(__file__).parent / "fixtures" / "version1"


def test_stored_files_are_read_bit_for_bit():
    assert same_bank(load_bank(STORED / "bank"), stored_bank())
    expected, graft = stored_graft(), load_graft(STORED / "graft.safetensors")
    assert graft.graft.same_bits(expected.graft)
    assert same_tensor(graft.head["bias"], expected.head["bias"])
    assert (graft.base, graft.task, graft.metadata) == (expected.base, "sentiment", {"score": 0.5})


def test_the_same_content_is_written_as_the_same_bytes(tmp_path):
    save_bank(stored_bank(), tmp_path / "bank")
    save_graft(stored_graft(), tmp_path / "graft.safetensors")
    assert content(tmp_path) == content(STORED)


def test_a_stored_bank_takes_the_next_entry_and_keeps_its_files(tmp_path):
    folder = shutil.copytree(STORED / "bank", tmp_path / "bank")
    before = content(folder)
    whole = stored_bank()
    save_bank(whole, folder)
    claimed = Region.of(whole.layout, [5, 6, 17])
    owned = Graft(whole.free(claimed), torch.tensor([1.0, 2.0]))
    grown = whole.append(Entry("next", 2, owned, claimed - owned.region))
    append_entry(grown, folder)
    after = content(folder)
    files = [name for name in before if "/" in name]
    assert {name: after[name] for name in files} == {name: before[name] for name in files}
    assert same_bank(load_bank(folder), grown)
