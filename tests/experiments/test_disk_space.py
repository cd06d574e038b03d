"""Room on the disk is looked at before training, and a run's folder has one writer."""

from __future__ import annotations

import json
import logging

import pytest
import torch
from configs import changed
from slow_cases import slow
from stored_banks import content

from cl_graft.banks.add import add_task
from cl_graft.errors import CannotWrite, DivergedError, InUse
from cl_graft.lab.experiments import disk_space, stream_run
from cl_graft.lab.experiments.comparison.compare import compare
from cl_graft.lab.experiments.folders import curves_folder
from cl_graft.lab.experiments.run import run, run_folder
from cl_graft.lab.experiments.run_curves import draw_pictures
from cl_graft.storage import OWNER, free_bytes, load_bank, only_writer
from cl_graft.storage import cache_folder as cache_module
from cl_graft.storage.cache_folder import DirectoryCache


@pytest.fixture
def one_task(tiny_config):
    return changed(tiny_config, {"tasks": ["sentiment"]})


def lock_elsewhere(folder) -> None:
    """Leave the lock of another host in a folder."""
    with only_writer(folder):
        owner = json.loads((folder / OWNER).read_text())
    folder.mkdir(parents=True, exist_ok=True)
    (folder / OWNER).write_text(json.dumps({**owner, "host": "elsewhere", "machine": "another"}))


def test_a_run_without_room_is_refused_before_it_trains(tmp_path, one_task, monkeypatch):
    monkeypatch.setattr(disk_space, "free_bytes", lambda _: 200_000)
    steps = []
    with pytest.raises(CannotWrite, match=r"no room for this run: it needs about .* are free"):
        run(one_task, strategy="grafting", seed=0, out=tmp_path / "out", progress=steps.append)
    assert not [step for step in steps if step.phase == "dense"]
    assert not run_folder(tmp_path / "out", "grafting", 0).exists()


@pytest.mark.parametrize("strategy", ["grafting", "naive", *slow("independent")])
def test_what_a_run_writes_is_no_more_than_what_was_asked_for(
    tmp_path, one_task, strategy, monkeypatch
):
    asked = {}

    def look(folder, needs, *, cache, cached):
        asked.update(needs=sum(needs.values()), cache=cache)

    monkeypatch.setattr(disk_space, "check_disk_space", look)
    monkeypatch.setattr(stream_run, "draw_pictures", draw_pictures)
    run(one_task, strategy=strategy, seed=0, out=tmp_path)
    run_home = run_folder(tmp_path, strategy, 0)
    homes = (run_home, curves_folder(run_home))
    written = sum(len(data) for home in homes for data in content(home).values())
    assert written <= asked["needs"] <= 10 * written + 500_000
    phases = {"dense", "path", "ranking"}
    kept = [
        len(data)
        for name, data in content(tmp_path / "cache").items()
        if name.split("-")[0] in phases
    ]
    assert sum(kept) <= asked["cache"] + 10_000 * len(kept)


def test_the_cache_leaves_the_room_of_the_others_alone(tmp_path, caplog):
    cache = DirectoryCache(tmp_path)
    free = free_bytes(tmp_path)
    assert free is not None
    cache.spare = 10 * free
    with caplog.at_level(logging.WARNING):
        cache.put("dense-1", {"x": torch.ones(3)}, {})
    assert "going on without keeping it in the cache" in caplog.text
    assert cache.get("dense-1") is None
    cache.spare = 0
    cache.put("dense-1", {"x": torch.ones(3)}, {})
    assert cache.get("dense-1") is not None


def test_a_run_whose_cache_has_no_room_ends_with_the_same_bits(tmp_path, one_task, monkeypatch):
    run(one_task, strategy="grafting", seed=0, out=tmp_path / "one")

    def full(path, data, *, spare):
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


def test_a_run_that_diverges_keeps_the_tasks_before(tmp_path, tiny_config):
    config = changed(tiny_config, {"tasks": ["sentiment", "topic"]})
    from cl_graft.models import TaskModel

    forward, learned = TaskModel.forward, []

    def poisoned(self, *inputs, **more):
        answer = forward(self, *inputs, **more)
        return answer * float("nan") if learned else answer

    def watch(step):
        if step.task == "topic" and (step.phase, step.step) == ("train", 3):
            learned.append(step)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TaskModel, "forward", poisoned)
        with pytest.raises(DivergedError, match=r"task 'topic': .* step 4 of region training"):
            run(config, strategy="grafting", seed=0, out=tmp_path, progress=watch)
    bank = load_bank(run_folder(tmp_path, "grafting", 0) / "bank")
    assert [entry.task for entry in bank.entries] == ["sentiment"]
