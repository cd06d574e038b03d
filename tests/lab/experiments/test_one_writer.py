"""A run's folder has one writer, and a cache without room costs no bit."""

from __future__ import annotations

import json

import pytest
from configs import changed
from stored_banks import content

from cl_graft.banks.add import add_task
from cl_graft.errors import CannotWrite, DivergedError, InUse
from cl_graft.lab.experiments.comparison.compare import compare
from cl_graft.lab.experiments.run import run, run_folder
from cl_graft.models import TaskModel
from cl_graft.storage import OWNER, load_bank, only_writer
from cl_graft.storage import cache_folder as cache_module


@pytest.fixture
def one_task(tiny_config):
    return changed(tiny_config, {"tasks": ["scope"]})


def lock_elsewhere(folder) -> None:
    """Leave the lock of another host in a folder."""
    with only_writer(folder):
        owner = json.loads((folder / OWNER).read_text())
    folder.mkdir(parents=True, exist_ok=True)
    (folder / OWNER).write_text(json.dumps({**owner, "host": "elsewhere", "machine": "another"}))


def test_a_run_whose_cache_has_no_room_ends_with_the_same_bits(tmp_path, one_task, monkeypatch):
    run(one_task, strategy="grafting", seed=0, out=tmp_path / "one")

    def full(path, data):
        raise CannotWrite(f"cannot write {path}: no space is left there")

    monkeypatch.setattr(cache_module, "replace_file", full)
    run(one_task, strategy="grafting", seed=0, out=tmp_path / "two")
    assert not content(tmp_path / "two" / "cache")
    banks = [run_folder(tmp_path / name, "grafting", 0) / "bank" for name in ("one", "two")]
    assert content(banks[0]) == content(banks[1])


def test_a_folder_that_another_process_writes_to_is_refused(tmp_path, one_task):
    folder = run_folder(tmp_path, "grafting", 0)
    lock_elsewhere(folder)
    with pytest.raises(InUse, match=r"in use by process .* on elsewhere"):
        run(one_task, strategy="grafting", seed=0, out=tmp_path)
    (folder / OWNER).unlink()
    run(one_task, strategy="grafting", seed=0, out=tmp_path)
    assert not (folder / OWNER).exists()
    lock_elsewhere(tmp_path)
    with pytest.raises(InUse):
        compare(one_task, out=tmp_path)
    (tmp_path / OWNER).unlink()
    before = content(folder)
    for held in (folder, folder / "bank"):
        lock_elsewhere(held)
        with pytest.raises(InUse):
            add_task(folder / "bank", "topic")
        (held / OWNER).unlink()
    assert content(folder) == before


def test_a_run_that_diverges_keeps_the_tasks_before(tmp_path, tiny_config, monkeypatch):
    forward, learned = TaskModel.forward, []

    def poisoned(self, *inputs, **more):
        answer = forward(self, *inputs, **more)
        return answer * float("nan") if learned else answer

    def watch(step):
        if step.task == "topic" and (step.phase, step.step) == ("train", 3):
            learned.append(step)

    monkeypatch.setattr(TaskModel, "forward", poisoned)
    config = changed(tiny_config, {"tasks": ["scope", "topic"]})
    with pytest.raises(DivergedError, match=r"task 'topic': .* step 4 of region training"):
        run(config, strategy="grafting", seed=0, out=tmp_path, progress=watch)
    bank = load_bank(run_folder(tmp_path, "grafting", 0) / "bank")
    assert [entry.task for entry in bank.entries] == ["scope"]
