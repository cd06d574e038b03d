"""A run's folder has one writer, and a cache without room costs no bit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

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


@contextmanager
def writer(folder) -> Iterator[None]:
    """Let another thread be the writer of a folder."""
    ready, over = Event(), Event()

    def write() -> None:
        with only_writer(folder):
            ready.set()
            over.wait()

    thread = Thread(target=write)
    thread.start()
    ready.wait()
    try:
        yield
    finally:
        over.set()
        thread.join()


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
    with writer(folder), pytest.raises(InUse, match="in use by process "):
        run(one_task, strategy="grafting", seed=0, out=tmp_path)
    run(one_task, strategy="grafting", seed=0, out=tmp_path)
    assert not (folder / OWNER).exists()
    with writer(tmp_path), pytest.raises(InUse):
        compare(one_task, out=tmp_path)
    before = content(folder)
    for held in (folder, folder / "bank"):
        with writer(held), pytest.raises(InUse):
            add_task(folder / "bank", "topic")
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
