"""Entries of a bank on disk are replaced all together, and leave nothing behind."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from stored_banks import LAYOUT, bank_of, content, entry_of, same_bank, sample, stops_at_a_write

from cl_graft.errors import BankError
from cl_graft.grafts.bank import GraftBank
from cl_graft.storage import load_bank, save_bank
from cl_graft.storage.bank_folder import append_entry, replace_entries


def without_the_first(bank: GraftBank) -> GraftBank:
    return replace(bank, entries=bank.entries[1:])


def of_one_name(bank: GraftBank) -> GraftBank:
    """All entries under one name, so that file names of the old and the new bank clash."""
    return replace(bank, entries=tuple(replace(entry, task="qnli") for entry in bank.entries))


def test_a_listed_file_is_never_written_again(tmp_path):
    def places() -> dict[str, tuple[int, int]]:
        found = {path.name: path.stat() for path in tmp_path.glob("*/*.safetensors")}
        return {name: (about.st_ino, about.st_mtime_ns) for name, about in found.items()}

    bank = bank_of(mode="isolated")
    save_bank(bank, tmp_path)
    before = places()
    grown = bank.append(entry_of(bank, sample(LAYOUT, 30, 7), task="next"))
    append_entry(grown, tmp_path)
    save_bank(grown, tmp_path)
    after = places()
    assert {name: after[name] for name in before} == before
    replace_entries(without_the_first(grown), tmp_path, first=0)
    assert all(before.get(name, place) == place for name, place in places().items())


@pytest.mark.parametrize("named", [lambda bank: bank, of_one_name])
def test_a_crash_at_any_write_leaves_the_old_or_the_new_bank(tmp_path, named):
    bank = named(bank_of(mode="isolated"))
    left = without_the_first(bank)
    save_bank(left, tmp_path / "never")
    expected = content(tmp_path / "never")
    for crash_at in range(20):
        folder = tmp_path / str(crash_at)
        save_bank(bank, folder)
        change = partial(replace_entries, left, folder, first=0)
        killed = stops_at_a_write(change, after=crash_at, error=OSError)
        found = load_bank(folder)
        assert same_bank(found, bank if killed else left)
        if killed:
            change()
        assert content(folder) == expected
        if not killed:
            assert crash_at > 1
            return
    raise AssertionError("the replacement never ended")


@pytest.mark.parametrize("task", ["qnli", "ag_news", "sst2", "next"])
def test_a_bank_takes_entries_after_a_replacement_that_was_killed_anywhere(tmp_path, task):
    bank = of_one_name(bank_of(mode="isolated"))
    left = without_the_first(bank)
    for crash_at in range(20):
        folder = tmp_path / str(crash_at)
        save_bank(bank, folder)
        killed = stops_at_a_write(partial(replace_entries, left, folder, first=0), after=crash_at)
        grown = load_bank(folder)
        for seed in range(4):
            grown = grown.append(entry_of(grown, sample(LAYOUT, 30, seed), task=task))
            append_entry(grown, folder)
            assert same_bank(load_bank(folder), grown)
        if not killed:
            return
    raise AssertionError("the replacement never ended")


def test_files_that_a_killed_call_left_go_with_the_next_write_and_those_of_others_stay(tmp_path):
    bank = bank_of(tasks=2)
    save_bank(bank, tmp_path)
    before = content(tmp_path)
    (tmp_path / "entries" / "0123456789abcdef-gone.safetensors").write_bytes(b"old")
    (tmp_path / "entries" / ".001-gone.safetensors.0123abcd.tmp").write_bytes(b"part")
    (tmp_path / ".bank.json.0123abcd.tmp").write_bytes(b"part")
    (tmp_path / "entries" / "notes.txt").write_text("mine")
    save_bank(bank, tmp_path)
    assert content(tmp_path) == {**before, "entries/notes.txt": b"mine"}


def test_other_entries_before_the_first_are_refused(tmp_path):
    bank = bank_of()
    save_bank(bank, tmp_path)
    before = content(tmp_path)
    other = replace(bank.entries[0], task="another")
    with pytest.raises(BankError, match="holds another bank"):
        replace_entries(replace(bank, entries=(other, *bank.entries[1:])), tmp_path, first=1)
    with pytest.raises(ValueError, match="first must be at most 2, got 3"):
        replace_entries(replace(bank, entries=bank.entries[:2]), tmp_path, first=3)
    assert content(tmp_path) == before


def test_a_reader_whose_entry_goes_while_it_reads_gets_the_new_bank(tmp_path, monkeypatch):
    from cl_graft.storage import bank_folder

    bank = bank_of()
    save_bank(bank, tmp_path)
    left = replace(bank, entries=bank.entries[:1])
    really = bank_folder._read_entry

    def late(*arguments, **named):
        monkeypatch.undo()
        replace_entries(left, tmp_path, first=1)
        return really(*arguments, **named)

    monkeypatch.setattr(bank_folder, "_read_entry", late)
    assert same_bank(load_bank(tmp_path), left)
