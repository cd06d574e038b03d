"""A folder has one writer, and whoever comes second is told who is first."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cl_graft.errors import InputError, InUse
from cl_graft.storage import LOCK, OWNER, only_writer, release_dead
from cl_graft.storage import locks as module

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="processes are stopped by signals"),
    pytest.mark.filterwarnings("ignore:flock not supported on this filesystem"),
]


@contextmanager
def holder(folder: Path) -> Iterator[tuple[int, Callable[..., None]]]:
    """A child that holds a folder: its number, and a function that ends or kills it."""
    held, release = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            with only_writer(folder):
                os.write(held[1], b"x")
                os.read(release[0], 1)
        finally:
            os._exit(0)
    assert os.read(held[0], 1) == b"x"
    children = [pid]

    def end(*, kill: bool = False) -> None:
        if kill:
            os.kill(pid, signal.SIGKILL)
        os.write(release[1], b"x")
        os.waitpid(children.pop(), 0)

    try:
        yield pid, end
    finally:
        if children:
            end(kill=True)
        for pipe in (*held, *release):
            os.close(pipe)


def left_behind(folder: Path, **changed: Any) -> None:
    """Write the lock file of a process that is gone."""
    with only_writer(folder):
        owner = json.loads((folder / OWNER).read_text())
        known = {**owner, "pid": 2**22 - 7, "command": "old", **changed}
        copy = json.dumps(known)
    folder.mkdir(exist_ok=True)
    (folder / OWNER).write_text(copy)


def break_flock(monkeypatch: pytest.MonkeyPatch, code: int = errno.ENOSYS) -> None:
    """Let `flock` fail in this process as on a file system without it."""

    def flock(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", flock)


def test_the_second_process_stops_and_is_told_who_the_first_is(tmp_path):
    folder = tmp_path / "run"
    with holder(folder) as (pid, end):
        with pytest.raises(InUse) as told, only_writer(folder):
            pass
        text = str(told.value)
        assert f"process {pid} on " in text
        assert str(folder) in text
        assert " since " in text
        assert "second" in text
        end()
        with only_writer(folder):
            assert json.loads((folder / OWNER).read_text())["pid"] == os.getpid()


def test_the_lock_of_a_killed_process_is_taken_over_with_a_word(tmp_path, caplog):
    with holder(tmp_path) as (pid, end):
        end(kill=True)
    assert (tmp_path / LOCK).is_file()
    with caplog.at_level(logging.WARNING), only_writer(tmp_path):
        pass
    assert f"taking over from process {pid} on " in caplog.text
    assert not (tmp_path / LOCK).exists()


def test_a_child_that_outlives_its_parent_does_not_hold_the_parents_lock(tmp_path):
    ready, wait = os.pipe(), os.pipe()
    with only_writer(tmp_path):
        child = os.fork()
        if child == 0:
            os.write(ready[1], b"x")
            os.read(wait[0], 1)
            os._exit(0)
        os.read(ready[0], 1)
    try:
        with only_writer(tmp_path):
            pass
    finally:
        os.write(wait[1], b"x")
        assert os.waitpid(child, 0)[1] == 0
        for end in (*ready, *wait):
            os.close(end)


def test_a_number_that_another_process_has_by_now_does_not_hold_a_folder(tmp_path):
    left_behind(tmp_path, pid=os.getppid())
    with only_writer(tmp_path):
        assert json.loads((tmp_path / OWNER).read_text())["pid"] == os.getpid()


ELSEWHERE = {"host": "elsewhere", "machine": "another"}


def last_beat(folder: Path, *, seconds: float) -> None:
    """Let the last sign of life of a folder's owner, and its lock file, be so old."""
    for path in (folder / OWNER, folder / LOCK):
        if path.exists():
            os.utime(path, (time.time() - seconds,) * 2)


@pytest.mark.parametrize("flock", [True, False])
@pytest.mark.parametrize("changed", [ELSEWHERE, {"host": "elsewhere", "machine": ""}])
def test_the_lock_of_another_machine_is_taken_over_once_it_shows_no_sign_of_life(
    tmp_path, monkeypatch, caplog, flock, changed
):
    left_behind(tmp_path, **changed)
    before = (tmp_path / OWNER).read_bytes()
    if not flock:
        break_flock(monkeypatch)
        (tmp_path / LOCK).write_text("4194297\nelsewhere\n")
    last_beat(tmp_path, seconds=200)
    with pytest.raises(InUse) as told, only_writer(tmp_path):
        pass
    assert "is taken over 5 minutes after its last sign of life, or delete " in str(told.value)
    assert (tmp_path / OWNER).read_bytes() == before
    last_beat(tmp_path, seconds=400)
    with caplog.at_level(logging.WARNING), only_writer(tmp_path):
        assert json.loads((tmp_path / OWNER).read_text())["pid"] == os.getpid()
    assert "on elsewhere (old), which gave its last sign of life 6 minutes ago" in caplog.text
    assert not list(tmp_path.iterdir())


def test_a_machine_that_is_called_otherwise_by_now_takes_its_lock_over(tmp_path, monkeypatch):
    with holder(tmp_path) as (_, end):
        end(kill=True)
    monkeypatch.setattr(socket, "gethostname", lambda: "renamed")
    with only_writer(tmp_path):
        assert json.loads((tmp_path / OWNER).read_text())["host"] == "renamed"


def test_an_owner_gives_signs_of_life(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_BEAT", 0.001)
    monkeypatch.setattr(module, "_heart", None)
    with only_writer(tmp_path):
        last_beat(tmp_path, seconds=1000)
        until = time.monotonic() + 5
        while time.time() - (tmp_path / OWNER).stat().st_mtime > 500:
            assert time.monotonic() < until
            time.sleep(0.001)


def test_an_owner_that_was_taken_for_dead_leaves_the_lock_of_the_next_one(tmp_path):
    with only_writer(tmp_path):
        owner = json.loads((tmp_path / OWNER).read_text())
        (tmp_path / OWNER).write_text(json.dumps(owner | ELSEWHERE))
    assert (tmp_path / OWNER).exists()
    assert (tmp_path / LOCK).exists()


@pytest.mark.parametrize("flock", [True, False])
def test_a_process_that_is_known_to_be_dead_holds_nothing(tmp_path, monkeypatch, flock):
    if not flock:
        break_flock(monkeypatch)
    for folder in (tmp_path, tmp_path / "bank"):
        left_behind(folder, **ELSEWHERE)
        (folder / LOCK).write_text("" if flock else "4194297\nelsewhere\n")
    release_dead(tmp_path)
    with only_writer(tmp_path), only_writer(tmp_path / "bank"):
        pass


def test_without_flock_a_living_writer_keeps_others_out_and_a_dead_one_does_not(
    tmp_path, monkeypatch
):
    break_flock(monkeypatch)
    with holder(tmp_path) as (pid, end):
        with pytest.raises(InUse, match=f"process {pid} on "), only_writer(tmp_path):
            pass
        end(kill=True)
    assert (tmp_path / LOCK).is_file()
    with only_writer(tmp_path):
        assert json.loads((tmp_path / OWNER).read_text())["pid"] == os.getpid()
    assert not list(tmp_path.iterdir())


def test_a_file_system_whose_locks_do_not_work_is_told(tmp_path, monkeypatch):
    break_flock(monkeypatch, errno.ENOLCK)
    with pytest.raises(InputError, match="a file system without locks"), only_writer(tmp_path):
        pass


def plant(kind: str, planted: Path, precious: Path) -> None:
    """Put something that is no file of ours in a place in a new folder."""
    precious.write_text("three years")
    planted.parent.mkdir()
    if kind == "link":
        planted.symlink_to(precious)
    elif kind == "hard link":
        planted.hardlink_to(precious)
    elif kind == "fifo":
        os.mkfifo(planted)
    elif kind == "folder":
        planted.mkdir()
    else:
        with planted.open("wb") as file:
            file.truncate(2**40)


@pytest.mark.parametrize("kind", ["link", "hard link", "fifo", "folder"])
def test_nothing_in_the_place_of_a_lock_is_followed_written_or_waited_for(tmp_path, kind):
    precious, folder = tmp_path / "thesis.tex", tmp_path / "run"
    planted = folder / LOCK
    plant(kind, planted, precious)
    began = time.monotonic()
    with pytest.raises(InputError) as told, only_writer(folder):
        pass
    assert time.monotonic() - began < 5
    assert f"{planted} is a " in str(told.value)
    assert "delete it" in str(told.value)
    assert precious.read_text() == "three years"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "thesis.tex"]
    assert [path.name for path in folder.iterdir()] == [LOCK]


@pytest.mark.parametrize("kind", ["link", "fifo", "huge"])
def test_nothing_in_the_place_of_an_owners_name_is_followed_or_waited_for(tmp_path, kind):
    precious, folder = tmp_path / "thesis.tex", tmp_path / "run"
    planted = folder / OWNER
    plant(kind, planted, precious)
    with only_writer(folder):
        assert json.loads(planted.read_text())["pid"] == os.getpid()
        assert not planted.is_symlink()
    assert precious.read_text() == "three years"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "thesis.tex"]


def test_a_lock_file_that_was_cut_short_is_taken_over(tmp_path):
    for content in ("", "{", "[]", '{"pid": "x"}', "\x00" * 100):
        (tmp_path / OWNER).write_text(content)
        with only_writer(tmp_path):
            pass
        assert not (tmp_path / LOCK).exists()


@pytest.mark.parametrize("hours", [-5, 5, 10**9, float("nan")])
def test_a_clock_that_was_set_does_not_matter(tmp_path, hours):
    with only_writer(tmp_path):
        owner = json.loads((tmp_path / OWNER).read_text())
    owner |= {"since": time.time() + 3600 * hours, **ELSEWHERE}
    (tmp_path / OWNER).write_text(json.dumps(owner))
    with pytest.raises(InUse, match=f"process {os.getpid()} on elsewhere"), only_writer(tmp_path):
        pass
    owner |= {"machine": module._machine()}
    (tmp_path / OWNER).write_text(json.dumps(owner))
    with only_writer(tmp_path):
        pass


def test_what_a_foreign_lock_file_says_stays_on_its_line(tmp_path):
    left_behind(tmp_path, host="a\nb\x1b[31m" + "c" * 1000, machine="another")
    with pytest.raises(InUse) as told, only_writer(tmp_path):
        pass
    assert "\n" not in str(told.value)
    assert "\x1b" not in str(told.value)
    assert len(str(told.value)) < 1000


def test_blocks_of_one_thread_nest_and_an_exception_gives_the_folder_back(tmp_path):
    with pytest.raises(RuntimeError, match="stop"), only_writer(tmp_path), only_writer(tmp_path):
        raise RuntimeError("stop")
    assert not (tmp_path / LOCK).exists()
    with only_writer(tmp_path):
        with only_writer(tmp_path / "."):
            pass
        assert (tmp_path / LOCK).exists()


def test_a_new_folder_goes_again_if_nothing_was_written_and_a_file_in_the_way_is_told(tmp_path):
    folder = tmp_path / "one" / "two"
    with only_writer(folder):
        assert folder.is_dir()
    assert not (tmp_path / "one").exists()
    with only_writer(folder):
        (folder / "kept").write_text("")
    assert (folder / "kept").exists()
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(InputError, match="there is a file in the way"), only_writer(folder):
            pass
