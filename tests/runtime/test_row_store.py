"""The store of states: bounded in memory, in files past the bound, old before new."""

import shutil
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from cl_graft.runtime import row_store
from cl_graft.runtime.row_store import RowStore


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch, tmp_path):
    monkeypatch.setattr(row_store, "_CHUNK", 4000)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def fill(store, first, last, dtype=torch.float32):
    for key in range(first, last):
        store.put(key, torch.full((25, 10), float(key), dtype=dtype))


def test_what_is_put_comes_back_from_memory_and_from_files():
    store = RowStore(memory=8000)
    fill(store, 0, 30)
    assert len(store) == 30
    assert store.bytes_in_memory == 8000
    assert store.bytes_in_files == 24000  # 30 of 1,000 bytes, four to a chunk
    for key in range(30):
        assert torch.equal(store.get(key), torch.full((25, 10), float(key)))
    assert store.get("another") is None


def test_no_file_is_left_behind(tmp_path):
    store = RowStore(memory=0)
    fill(store, 0, 4, torch.bfloat16)
    assert store.get(3).dtype == torch.bfloat16
    assert store.bytes_in_files
    del store
    assert [path for path in Path(tmp_path).rglob("*") if path.is_file()] == []


def test_a_key_is_held_once():
    store = RowStore(memory=8000)
    for _ in range(9):
        fill(store, 0, 2)
    assert store.bytes_in_memory == 4000


def test_old_states_give_way_before_new_ones_go_to_a_file():
    store = RowStore(memory=8000)
    fill(store, 0, 8)
    store.begin()
    fill(store, 8, 14)
    assert store.bytes_in_files == 0
    assert store.get(0) is None
    assert all(store.get(key) is not None for key in range(8, 14))


def test_where_the_disk_is_full_no_more_is_stored(monkeypatch, caplog):
    store = RowStore(memory=4000)

    def refuse(self, count, dtype):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RowStore, "_map_file", refuse)
    fill(store, 0, 9)
    assert len(store) == 4
    assert caplog.text.count("No space left") == 1
    store.clear()
    fill(store, 0, 3)
    assert len(store) == 3


def test_room_is_left_on_the_disk(monkeypatch, caplog):
    monkeypatch.setattr(shutil, "disk_usage", lambda place: SimpleNamespace(free=2**27))
    store = RowStore(memory=4000)
    fill(store, 0, 9)
    assert len(store) == 4
    assert "is nearly full" in caplog.text


def test_a_file_that_could_not_be_written_does_not_stay(tmp_path, caplog):
    resource = pytest.importorskip("resource", reason="limits of files are POSIX's")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    store = RowStore(memory=4000)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2**19, hard))  # a file has 2**20 at least
        fill(store, 0, 9)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert len(store) == 4
    assert "not stored" in caplog.text
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
