"""Every version of the format that was ever written can be read, and grown."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from slow_cases import slow
from storage.old_banks import stored_bank, stored_graft
from stored_banks import content, same_bank, same_tensor

from cl_graft.errors import BankError
from cl_graft.grafts.bank import Entry
from cl_graft.grafts.graft import Graft
from cl_graft.grafts.region import Region
from cl_graft.storage import append_entry, load_bank, load_graft, save_bank
from cl_graft.storage.files import NEWEST

FIXTURES = Path(__file__).parent / "fixtures"
VERSIONS = range(1, NEWEST + 1)


@pytest.mark.parametrize("version", VERSIONS)
def test_files_of_every_version_are_read_bit_for_bit(version: int) -> None:
    folder = FIXTURES / f"version{version}"
    assert json.loads((folder / "bank" / "bank.json").read_text())["version"] == version
    assert same_bank(load_bank(folder / "bank"), stored_bank(version))
    expected, found = stored_graft(), load_graft(folder / "graft.safetensors")
    assert found.graft.same_bits(expected.graft)
    assert same_tensor(found.head["bias"], expected.head["bias"])
    assert (found.base, found.task, found.metadata) == (expected.base, "sentiment", {"score": 0.5})


@pytest.mark.parametrize("version", VERSIONS)
def test_a_bank_of_an_old_version_takes_the_next_entry_and_keeps_its_files(
    tmp_path: Path, version: int
) -> None:
    folder = shutil.copytree(FIXTURES / f"version{version}" / "bank", tmp_path / "bank")
    before = content(folder)
    whole = stored_bank(version)
    save_bank(whole, folder)
    claimed = Region.of(whole.layout, [5, 6, 17])
    owned = Graft(whole.free(claimed), torch.tensor([1.0, 2.0]))
    grown = whole.append(Entry("next", 2, owned, claimed - owned.region))
    append_entry(grown, folder)
    after = content(folder)
    files = [name for name in before if "/" in name]
    assert {name: after[name] for name in files} == {name: before[name] for name in files}
    assert json.loads(after["bank.json"])["version"] == NEWEST
    assert same_bank(load_bank(folder), grown)


@pytest.mark.parametrize("version", [VERSIONS[-1], *slow(*VERSIONS[:-1])])
def test_flips_in_files_of_every_version_are_refused(tmp_path: Path, version: int) -> None:
    folder = shutil.copytree(FIXTURES / f"version{version}" / "bank", tmp_path / "bank")
    for name, data in content(folder).items():
        for place in range(0, len(data), 11):
            changed = bytearray(data)
            changed[place] ^= 1 << (place % 8)
            (folder / name).write_bytes(changed)
            with pytest.raises(BankError):
                load_bank(folder)
        (folder / name).write_bytes(data)
    assert same_bank(load_bank(folder), stored_bank(version))
