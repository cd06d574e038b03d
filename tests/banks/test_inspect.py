"""Inspection reads files alone, and its numbers are those of the bank."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from stored_banks import bank_of
from tiny_runs import tiny_run

from cl_graft import load_bank
from cl_graft.banks.forget import forget
from cl_graft.banks.inspect import inspect_bank, inspect_graft
from cl_graft.errors import ForeignFile, InputError
from cl_graft.storage import StoredGraft, bank_folder, save_bank, save_graft


@pytest.fixture(scope="module")
def run(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("inspect")
    return tiny_run(out, tiny_bert, ["scope", "topic"], avoid_owned=False, density=0.3)


def test_counts_and_bytes_are_those_of_the_bank_and_no_base_is_needed(run, monkeypatch):
    monkeypatch.setattr("cl_graft.models.load_model", None)
    bank, found = load_bank(run / "bank"), inspect_bank(run)
    files = [path for path in (run / "bank").rglob("*") if path.is_file()]
    assert found.bytes == sum(path.stat().st_size for path in files)
    assert found.coordinates == bank.layout.total
    assert found.owned == sum(entry.owned for entry in found.entries) == len(bank.owned())
    for entry, described in zip(bank.entries, found.entries, strict=True):
        assert (described.task, described.label) == (entry.task, entry.label)
        assert (described.region_size, described.owned) == (len(entry.region), len(entry.owned))
        assert described.density == entry.region.density
        assert described.label_names == tuple(entry.metadata["label_names"])  # type: ignore[arg-type]
        (file,) = (run / "bank" / "entries").glob(f"*-{described.task}.safetensors")
        assert described.bytes == file.stat().st_size


def test_what_a_task_lost_is_what_it_shares_with_earlier_ones(run):
    first, second = inspect_bank(run).entries
    assert first.owned_before == 0
    one, other = (entry.region for entry in load_bank(run / "bank").entries)
    assert second.owned_before == pytest.approx(one.overlap(other))
    assert second.owned_before > 0


def test_a_bank_that_is_changed_while_it_is_read_is_described_as_it_was(run, tmp_path, monkeypatch):
    bank = shutil.copytree(run / "bank", tmp_path / "bank")
    sizes = [entry.bytes for entry in inspect_bank(bank).entries]
    read = bank_folder._read_entry

    def read_and_forget(record, folder, of, *, position):
        entry = read(record, folder, of, position=position)
        if position == 1 and (bank / record["file"]).exists():
            monkeypatch.undo()
            forget(bank, "topic")
        return entry

    monkeypatch.setattr(bank_folder, "_read_entry", read_and_forget)
    found = inspect_bank(bank)
    assert [(e.task, e.bytes) for e in found.entries] == [("scope", sizes[0]), ("topic", sizes[1])]
    assert [entry.task for entry in inspect_bank(bank).entries] == ["scope"]


def test_the_file_of_a_single_graft_is_described_too(run, tmp_path):
    bank = load_bank(run / "bank")
    entry = bank.entries[0]
    save_graft(StoredGraft(entry.owned, bank.base, entry.task), tmp_path / "one.safetensors")
    found = inspect_graft(tmp_path / "one.safetensors")
    assert (found.task, found.region_size) == ("scope", len(entry.owned))
    assert found.fingerprint == bank.base.fingerprint


def test_what_is_told_of_a_task_does_not_grow_with_the_number_of_tasks(tmp_path):
    (first,) = bank_of(mode="isolated", tasks=1).entries
    told = []
    for tasks in (25, 50):
        entries = tuple(replace(first, task=f"task{n:02}", label=n) for n in range(tasks))
        bank = replace(bank_of(mode="isolated", tasks=1), entries=entries)
        save_bank(bank, tmp_path / str(tasks))
        told.append(len(repr(inspect_bank(tmp_path / str(tasks)).entries)) / tasks)
    assert told[1] < 1.05 * told[0]


def test_what_is_no_bank_is_refused(tmp_path):
    with pytest.raises(InputError, match="there is no folder"):
        inspect_bank(tmp_path / "nowhere")
    with pytest.raises(ForeignFile, match=r"no bank\.json"):
        inspect_bank(tmp_path)
