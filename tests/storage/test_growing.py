"""A bank on disk grows by whole entries, or not at all."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from stored_banks import LAYOUT, bank_of, base_identity, content, entry_of, same_bank, sample

from cl_graft.errors import BankError, WrongBase
from cl_graft.grafts.bank import GraftBank
from cl_graft.storage import append_entry, load_bank, save_bank


def test_appending_writes_one_entry_and_touches_no_other(tmp_path):
    whole = bank_of()
    bank = GraftBank(whole.layout, whole.base)
    before: dict[str, bytes] = {}
    for entry in whole.entries:
        bank = bank.append(entry)
        append_entry(bank, tmp_path)
        after = content(tmp_path)
        assert all(after[name] == before[name] for name in before if "/" in name)
        before = after
    assert same_bank(load_bank(tmp_path), whole)
    save_bank(whole, tmp_path / "at_once")
    assert content(tmp_path / "at_once") == before


@pytest.mark.parametrize("point", ["fsync", "entry", "bank.json"])
def test_a_crash_while_an_entry_is_added_leaves_the_old_bank(tmp_path, monkeypatch, point):
    bank = bank_of()
    save_bank(bank, tmp_path)
    before = content(tmp_path)
    grown = bank.append(entry_of(bank, sample(LAYOUT, 30, 7), task="mrpc"))
    really = os.replace

    def crash(source: Path, target: Path) -> None:
        if point == "entry" or target.name == point:
            raise OSError("no power")
        really(source, target)

    def full(*_: object) -> None:
        raise OSError("no space")

    if point == "fsync":
        monkeypatch.setattr(os, "fsync", full)
    else:
        monkeypatch.setattr(os, "replace", crash)
    with pytest.raises(OSError, match="no "):
        append_entry(grown, tmp_path)
    monkeypatch.undo()
    after = content(tmp_path)
    assert {name: after[name] for name in before} == before
    assert not [name for name in after if name.endswith(".tmp")]
    assert same_bank(load_bank(tmp_path), bank)
    append_entry(grown, tmp_path)
    assert same_bank(load_bank(tmp_path), grown)


def test_appending_to_a_bank_that_grew_elsewhere_is_refused(tmp_path):
    bank = bank_of(tasks=2)
    save_bank(bank, tmp_path)
    mine = bank.append(entry_of(bank, sample(LAYOUT, 30, 7), task="mine"))
    yours = bank.append(entry_of(bank, sample(LAYOUT, 30, 8), task="yours"))
    append_entry(yours, tmp_path)
    with pytest.raises(BankError, match="holds 3 entries, so it cannot take entry number 3"):
        append_entry(mine, tmp_path)
    other = mine.append(entry_of(mine, sample(LAYOUT, 5, 9), task="next"))
    with pytest.raises(BankError, match="'yours' is not the 'mine'"):
        append_entry(other, tmp_path)
    assert same_bank(load_bank(tmp_path), yours)


def test_saving_over_another_bank_is_refused(tmp_path):
    save_bank(bank_of(), tmp_path)
    before = content(tmp_path)
    with pytest.raises(BankError, match="holds a bank of 3 entries, this one has 2"):
        save_bank(bank_of(tasks=2), tmp_path)
    other = bank_of()
    other = replace(other, entries=(replace(other.entries[0], label=7), *other.entries[1:]))
    with pytest.raises(BankError, match="its entry 0 is not"):
        save_bank(other, tmp_path)
    with pytest.raises(BankError, match="in prefix mode, this one is isolated"):
        save_bank(bank_of(mode="isolated"), tmp_path)
    with pytest.raises(WrongBase, match="another base model"):
        save_bank(replace(bank_of(), base=replace(base_identity(), fingerprint="b" * 64)), tmp_path)
    assert content(tmp_path) == before


def test_saving_over_a_bank_that_lost_its_index_is_refused(tmp_path):
    bank = bank_of()
    save_bank(bank, tmp_path)
    (tmp_path / "bank.json").unlink()
    before = content(tmp_path)
    first = GraftBank(LAYOUT, base_identity())
    first = first.append(entry_of(first, sample(LAYOUT, 9, 50)))
    with pytest.raises(BankError, match=r"but no bank\.json that lists it.*from a copy"):
        append_entry(first, tmp_path)
    assert content(tmp_path) == before
    save_bank(bank, tmp_path)  # whose files these are
    assert same_bank(load_bank(tmp_path), bank)
