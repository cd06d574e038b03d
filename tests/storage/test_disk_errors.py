"""A disk that takes no more is told with its folder, and what was there stays."""

from __future__ import annotations

import errno
import os
import resource

import pytest
from stored_banks import LAYOUT, bank_of, content, entry_of, same_bank, sample

from cl_graft.errors import CannotWrite, InputError
from cl_graft.storage import append_entry, explain_write_errors, load_bank, only_writer, save_bank
from cl_graft.storage.files import replace_file

REASONS = {
    errno.ENOSPC: "no space is left there",
    errno.EDQUOT: "the quota there is used up",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "permission is denied",
}


@pytest.mark.parametrize("code", REASONS)
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_file_that_cannot_be_written_names_what_and_why(tmp_path, monkeypatch, code, call):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, call, refuse)
    with pytest.raises(CannotWrite) as told:
        replace_file(path, b"x" * 1234)
    assert str(path) in str(told.value)
    assert REASONS[code] in str(told.value)
    assert "1,234 bytes are needed" in str(told.value)
    assert told.value.errno == code
    assert isinstance(told.value, InputError | OSError)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_other_errors_stay_what_they_are(tmp_path):
    with pytest.raises(FileNotFoundError):
        replace_file(tmp_path / "nowhere" / "file", b"")
    with (
        pytest.raises(OSError, match="later") as told,
        explain_write_errors(tmp_path, denied=False),
    ):
        raise OSError(errno.EACCES, "later")
    assert not isinstance(told.value, CannotWrite)
    with (
        pytest.raises(CannotWrite, match="bytes are free"),
        explain_write_errors(tmp_path, denied=False),
    ):
        raise OSError(errno.ENOSPC, "full")


def test_a_bank_that_may_not_grow_on_keeps_what_it_has(tmp_path):
    bank = bank_of()
    save_bank(bank, tmp_path)
    before = content(tmp_path)
    grown = bank.append(entry_of(bank, sample(LAYOUT, 30, 7), task="mrpc"))
    # A limit on the size of files holds for the superuser, too; a child, as it cannot be raised.
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        try:
            append_entry(grown, tmp_path)
        except CannotWrite as error:
            os._exit(0 if "ulimit -f" in str(error) else 3)
        os._exit(4)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert {name: data for name, data in content(tmp_path).items() if name in before} == before
    assert same_bank(load_bank(tmp_path), bank)
    append_entry(grown, tmp_path)
    assert same_bank(load_bank(tmp_path), grown)


def test_a_full_disk_takes_no_lock_and_leaves_none(tmp_path):
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        try:
            with only_writer(tmp_path / "run"):
                os._exit(3)
        except CannotWrite as error:
            os._exit(0 if ".cl-graft.lock" in str(error) else 4)
        finally:
            os._exit(5)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not (tmp_path / "run").exists()
