"""A folder has one writer, and whoever comes second is told who is first."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cl_graft.errors import InputError, InUse
from cl_graft.storage import LOCK, OWNER, only_writer, release_dead

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
        assert " since 2" in text
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


@pytest.mark.parametrize("flock", [True, False])
def test_a_process_that_is_known_to_be_dead_holds_nothing(tmp_path, monkeypatch, flock):
    """As that of a machine which is lost, whose lock nobody else gives up."""
    if not flock:
        break_flock(monkeypatch)
    for folder in (tmp_path, tmp_path / "bank"):
        folder.mkdir(exist_ok=True)
        (folder / OWNER).write_text('{"pid": 7}')
        (folder / LOCK).write_text("" if flock else "4194297\nelsewhere\n")
    if not flock:
        with pytest.raises(InUse, match=r"is lost, delete .*lock$"), only_writer(tmp_path):
            pass
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


@pytest.mark.parametrize("content", ["", '{"pid": "x"}', "\x00" * 100])
def test_an_owner_file_that_was_cut_short_or_is_no_file_of_ours_is_taken_over(tmp_path, content):
    (tmp_path / OWNER).write_text(content)
    with only_writer(tmp_path):
        pass
    assert not list(tmp_path.iterdir())


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
