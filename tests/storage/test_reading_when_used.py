"""An entry's file is read, and checked, when the entry is used."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import pytest
from stored_banks import LAYOUT, bank_of, content, entry_of, same_bank, sample

from cl_graft.errors import BankError, DamagedFile
from cl_graft.storage import append_entry, load_bank, save_bank
from cl_graft.storage.bank_folder import open_stored_bank, replace_entries


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def file_of(folder: Path, task: str) -> Path:
    (path,) = (folder / "entries").glob(f"*-{task}.safetensors")
    return path


def test_what_the_index_says_needs_no_entry(tmp_path):
    bank = bank_of()
    save_bank(bank, tmp_path)
    opened = open_stored_bank(tmp_path)
    for found, entry in zip(opened.entries, bank.entries, strict=True):
        assert (found.task, found.label, found.builds_on) == (entry.task, entry.label, None)
        assert (found.size, found.owned_size) == (entry.size, len(entry.owned))
        assert found.density == entry.density
        assert found.share_owned_before == entry.share_owned_before
        assert found.weights_sha256 == entry.weights_sha256
        assert repr(found) == repr(entry)
    assert repr(opened) == repr(bank)
    assert not any(entry.is_read for entry in opened.entries)


def test_an_entry_is_read_alone_and_bit_for_bit(tmp_path):
    bank = bank_of()
    save_bank(bank, tmp_path)
    opened = open_stored_bank(tmp_path)
    assert opened.entries[1].owned.same_bits(bank.entries[1].owned)
    assert [entry.is_read for entry in opened.entries] == [False, True, False]
    assert opened.entries[2].recorded_batch is not None
    assert same_bank(copy.deepcopy(opened), bank)
    assert same_bank(opened, bank)
    with pytest.raises(AttributeError, match="'Entry' object has no attribute 'colour'"):
        _ = opened.entries[0].colour


def test_a_damaged_entry_is_refused_when_it_is_used_and_no_other(tmp_path):
    bank = bank_of(mode="isolated")
    save_bank(bank, tmp_path)
    flip(file_of(tmp_path, "ag_news"))
    opened = open_stored_bank(tmp_path)
    assert opened.answer(0).same_bits(bank.answer(0))
    for _ in range(2):
        with pytest.raises(DamagedFile, match=r"ag_news.* is altered"):
            opened.answer(1)


def test_an_entry_that_another_process_took_away_is_named(tmp_path):
    bank = bank_of(mode="isolated")
    save_bank(bank, tmp_path)
    opened = open_stored_bank(tmp_path)
    replace_entries(bank.without([1]), tmp_path, first=1)
    assert opened.answer(2).same_bits(bank.answer(2))
    with pytest.raises(BankError, match=r"entry 1 \('ag_news'\) .* open the bank again"):
        opened.answer(1)


def test_entries_that_stay_are_neither_read_nor_written(tmp_path):
    bank = bank_of(mode="isolated")
    save_bank(bank, tmp_path / "bank")
    written = {path: path.stat() for path in (tmp_path / "bank").glob("*/*")}
    opened = open_stored_bank(tmp_path / "bank")
    left = opened.without([0])
    renumbered = [one.renumber(label=one.label - 1, builds_on=None) for one in left.entries]
    left = replace(left, entries=tuple(renumbered))
    replace_entries(left, tmp_path / "bank", first=0)
    assert not any(entry.is_read for entry in opened.entries)
    for path in (tmp_path / "bank").glob("*/*"):
        then, now = written[path], path.stat()
        assert (now.st_ino, now.st_mtime_ns) == (then.st_ino, then.st_mtime_ns)
    never = [replace(entry, label=entry.label - 1) for entry in bank.entries[1:]]
    save_bank(replace(bank, entries=tuple(never)), tmp_path / "never")
    assert content(tmp_path / "bank") == content(tmp_path / "never")


def test_a_bank_that_was_not_read_grows_and_is_copied(tmp_path):
    bank = bank_of()
    save_bank(bank, tmp_path / "bank")
    opened = open_stored_bank(tmp_path / "bank")
    entry = entry_of(bank, sample(LAYOUT, 30, 7), task="mrpc")
    append_entry(replace(opened, entries=(*opened.entries, entry)), tmp_path / "bank")
    assert not any(entry.is_read for entry in opened.entries)
    save_bank(open_stored_bank(tmp_path / "bank"), tmp_path / "copy")
    assert content(tmp_path / "copy") == content(tmp_path / "bank")
    assert same_bank(load_bank(tmp_path / "copy"), bank.append(entry))
