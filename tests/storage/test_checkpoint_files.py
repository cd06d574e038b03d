"""Files of checkpoints: when one is written, which are kept, and what is left of damaged ones."""

import logging

import pytest
import torch

from cl_graft.errors import CannotWrite
from cl_graft.runtime.signals import Stop, Stopped
from cl_graft.storage import checkpoint_files
from cl_graft.storage.checkpoint_files import FileCheckpoints


def offered(checkpoints, steps, *, key="loop-0", last=False):
    for step in range(steps):
        checkpoints.offer(key, lambda step=step: ({"x": torch.tensor(step)}, {"step": step}),
                          last=last)  # fmt: skip


def names(folder):
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_a_state_comes_back_bit_for_bit(tmp_path):
    checkpoints = FileCheckpoints(tmp_path / "c")
    tensors = {"a/b.weight": torch.tensor([-0.0, float("nan")]), "step": torch.tensor(3.0)}
    values = {"best": float("-inf"), "dev": float("nan"), "names": ["é", None], "n": 0.1 + 0.2}
    assert checkpoints.keep("dense-x", lambda: (tensors, values))
    state = checkpoints.at("dense-x").load()
    assert state is not None
    assert state[0]["a/b.weight"].numpy().tobytes() == tensors["a/b.weight"].numpy().tobytes()
    assert state[0]["step"].shape == ()
    assert str(state[1]) == str(values)
    assert checkpoints.at("dense-y").load() is None


def test_the_values_of_a_long_stream_fit_in(tmp_path):
    checkpoints, size = FileCheckpoints(tmp_path), 800
    values = {
        "hashes": [["0" * 64] * (row + 1) for row in range(size)]
    }  # 21 MB, more than a header takes
    assert checkpoints.keep("run", lambda: ({}, values))
    state = checkpoints.load("run")
    assert state is not None
    assert state[1] == values


def test_the_last_of_a_kind_is_kept(tmp_path):
    checkpoints = FileCheckpoints(tmp_path, steps=2)
    offered(checkpoints, 9)
    offered(checkpoints, 4, key="dense-x")
    assert names(tmp_path) == ["dense.safetensors", "loop.safetensors"]
    assert checkpoints.latest("loop")[1] == {"step": 7}
    checkpoints.clear(but="dense")
    assert names(tmp_path) == ["dense.safetensors"]


def test_without_a_setting_nothing_is_written_and_with_seconds_only_in_time(tmp_path):
    for seconds in (None, 1000.0):
        offered(FileCheckpoints(tmp_path, seconds=seconds), 50)
    assert names(tmp_path) == []
    offered(FileCheckpoints(tmp_path, seconds=1000.0), 1, last=True)
    assert names(tmp_path) == ["loop.safetensors"]


def test_a_checkpoint_that_took_long_is_not_followed_by_another_at_once(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("cl_graft.storage.checkpoint_files.time.perf_counter", lambda: now[0])
    checkpoints = FileCheckpoints(tmp_path, seconds=10.0)
    written = []

    def slowly():
        now[0] += 3.0
        written.append(now[0])
        return {}, {}

    while now[0] < 1000.0:
        now[0] += 1.0
        checkpoints.offer("loop-0", slowly)
    # The first after 10 seconds, each next one 300 seconds after the end of the one before.
    assert written == [13.0, 316.0, 619.0, 922.0]


def test_a_process_that_is_asked_to_stop_keeps_the_state_first(tmp_path):
    stop = Stop()
    checkpoints = FileCheckpoints(tmp_path, stop=stop)
    offered(checkpoints, 3)
    stop.asked = 15
    with pytest.raises(Stopped):
        offered(checkpoints, 1)
    assert names(tmp_path) == ["loop.safetensors"]
    with pytest.raises(Stopped):
        checkpoints.poll()


def test_a_damaged_file_is_no_checkpoint(tmp_path, caplog):
    checkpoints = FileCheckpoints(tmp_path, steps=1)
    offered(checkpoints, 2)
    path = tmp_path / "loop.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with caplog.at_level(logging.WARNING):
        assert checkpoints.load("loop-0") is None
    assert "loop.safetensors is altered" in caplog.text
    offered(checkpoints, 1)
    assert checkpoints.load("loop-0") is not None


def test_a_disk_without_room_costs_a_warning(tmp_path, caplog, monkeypatch):
    def full(path, data):
        raise CannotWrite(f"cannot write {path}: no space is left there")

    monkeypatch.setattr(checkpoint_files, "replace_file", full)
    checkpoints = FileCheckpoints(tmp_path / "c", steps=1)
    with caplog.at_level(logging.WARNING):
        offered(checkpoints, 2)
        assert not checkpoints.keep("run", lambda: ({}, {}))
    assert "no checkpoint could be written, the one before stands" in caplog.text
    assert names(tmp_path / "c") == []
