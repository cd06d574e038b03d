"""A bank's folder is put in order: what nobody lists goes, what is whole is listed."""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest
from stored_banks import LAYOUT, bank_of, content, entry_of, same_bank, sample, stops_at_a_write

from cl_graft.errors import BankError, FutureVersion, InputError, InUse
from cl_graft.grafts.bank import GraftBank
from cl_graft.storage import append_entry, load_bank, save_bank
from cl_graft.storage.repair import repair_bank


def file_of(folder: Path, task: str, kind: str = "entries") -> Path:
    (path,) = (folder / kind).glob(f"*-{task}.safetensors")
    return path


def numbered(bank: GraftBank, *places: int) -> GraftBank:
    return replace(bank, entries=tuple(bank.entries[place] for place in places))


def test_what_a_killed_writer_left_is_deleted(tmp_path):
    bank = bank_of()
    save_bank(bank, tmp_path)
    before = content(tmp_path)
    whole = repair_bank(tmp_path)
    assert (whole.entries, whole.deleted, whole.faults, whole.rebuilt) == (3, (), (), False)
    assert content(tmp_path) == before
    left = [
        "entries/0123456789abcdef-next.safetensors",
        "standalone/fedcba9876543210-next.safetensors",
        "entries/.0123456789abcdef-next.safetensors.01234567.tmp",
        ".bank.json.01234567.tmp",
        ".staged/bank.json",
    ]
    for name in left:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"part")
    repaired = repair_bank(tmp_path)
    assert set(repaired.deleted) == {*left[:4], ".staged"}
    assert content(tmp_path) == before


@pytest.mark.parametrize("mode", ["prefix", "isolated"])
@pytest.mark.parametrize("index", ["gone", "cut", "foreign"])
def test_a_lost_index_is_made_again_from_the_entries(tmp_path, mode, index):
    bank = bank_of(mode=mode)  # type: ignore[arg-type]
    save_bank(bank, tmp_path)
    before = content(tmp_path)
    path = tmp_path / "bank.json"
    text = path.read_bytes()
    path.unlink()
    if index != "gone":
        path.write_bytes(text[: len(text) // 2] if index == "cut" else b"{}")
    repaired = repair_bank(tmp_path)
    assert (repaired.entries, repaired.faults, repaired.rebuilt) == (3, (), True)
    shutil.rmtree(tmp_path / "removed", ignore_errors=True)
    assert content(tmp_path) == before
    for name in ("bank.json", "bank.copy.json"):
        (tmp_path / name).unlink()
    with pytest.raises(BankError, match=r"holds no bank\.copy\.json"):
        repair_bank(tmp_path)


@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_where_entries_stand_alone_only_the_damaged_one_is_lost(tmp_path, damage):
    bank = bank_of(mode="isolated")
    save_bank(bank, tmp_path)
    path = file_of(tmp_path, "ag_news")
    data = path.read_bytes()
    path.unlink()
    if damage == "cut":
        path.write_bytes(data[:-1])
    with pytest.raises(BankError):
        load_bank(tmp_path)
    repaired = repair_bank(tmp_path)
    assert same_bank(load_bank(tmp_path), numbered(bank, 0, 2))
    assert len(repaired.faults) == 1
    assert "ag_news" in repaired.faults[0]
    moved = [p.name for p in (tmp_path / "removed").rglob("*") if p.is_file()]
    assert len(moved) == (2 if damage == "cut" else 1)  # its standalone graft, too


def test_later_entries_of_a_prefix_go_with_the_one_they_were_trained_on_and_are_kept_aside(
    tmp_path,
):
    bank = bank_of()
    save_bank(bank, tmp_path)
    last = file_of(tmp_path, "sst2").read_bytes()
    file_of(tmp_path, "ag_news").unlink()
    repaired = repair_bank(tmp_path)
    assert same_bank(load_bank(tmp_path), numbered(bank, 0))
    assert "was trained on top of" in repaired.faults[1]
    (kept,) = (tmp_path / "removed" / "entries").glob("*-sst2.safetensors")
    assert kept.read_bytes() == last
    assert repair_bank(tmp_path).faults == ()


def test_a_repair_that_is_killed_anywhere_is_finished_by_the_next(tmp_path):
    bank = bank_of(mode="isolated")
    for crash_at in range(20):
        folder = tmp_path / str(crash_at)
        save_bank(bank, folder)
        (folder / "bank.json").unlink()
        file_of(folder, "qnli").write_bytes(b"nothing")
        killed = stops_at_a_write(partial(repair_bank, folder), after=crash_at)
        repair_bank(folder)
        assert same_bank(load_bank(folder), numbered(bank, 1, 2))
        if not killed:
            assert crash_at > 1
            return
    raise AssertionError("the repair never ended")


def test_nothing_is_repaired_under_another_writer_or_a_newer_version(tmp_path, monkeypatch):
    with monkeypatch.context() as newer:
        newer.setattr("cl_graft.storage.bank_index.VERSION", 2)
        save_bank(bank_of(), tmp_path)
    before = content(tmp_path)
    with pytest.raises(FutureVersion):
        repair_bank(tmp_path)
    assert content(tmp_path) == before
    with pytest.raises(InputError, match="there is no bank folder"):
        repair_bank(tmp_path / "nowhere")
    monkeypatch.setattr("cl_graft.storage.repair.only_writer", Mock(side_effect=InUse))
    with pytest.raises(InUse):
        repair_bank(tmp_path)


@pytest.mark.parametrize("kind", ["entries", "standalone"])
def test_files_behind_a_link_are_never_deleted(tmp_path, kind):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "000-mine.safetensors").write_bytes(b"mine")
    bank = bank_of(tasks=2)
    save_bank(bank, tmp_path / "bank")
    shutil.rmtree(tmp_path / "bank" / kind)
    (tmp_path / "bank" / kind).symlink_to(outside, target_is_directory=True)
    for change in (
        lambda: repair_bank(tmp_path / "bank"),
        lambda: append_entry(bank.append(entry_of(bank, sample(LAYOUT, 9, 3))), tmp_path / "bank"),
    ):
        with pytest.raises(InputError, match="is a link; expected a folder"):
            change()
    assert (outside / "000-mine.safetensors").read_bytes() == b"mine"
    assert len(list(outside.iterdir())) == 1
