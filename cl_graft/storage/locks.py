"""The lock of a folder: one process writes, and a file beside the lock says which one.

The kernel holds the lock, and gives it up when its process ends, however it ends. Where a file
system has no `flock`, the lock's file names the process. The owner file beside it serves messages.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from filelock import BaseFileLock, FileLock, SoftFileLock, Timeout

from cl_graft.errors import InputError, InUse
from cl_graft.runtime.escaping import for_terminal
from cl_graft.storage.disk_errors import explain_write_errors
from cl_graft.storage.files import delete_partial_files, replace_file

logger = logging.getLogger(__name__)

LOCK = ".cl-graft.lock"
"""The lock file's name in its folder."""

OWNER = ".cl-graft.lock.json"
"""The name of the file beside it that says who holds the folder."""

_WAIT = 0.2  # seconds to wait for a lock, as its holder may be about to release it
_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL}
# Process, thread and folder of each lock that is held: a forked child holds none.
_held: set[tuple[int, int, Path]] = set()


@contextmanager
def only_writer(folder: Path | str) -> Iterator[None]:
    """Be the only process that writes to a folder, for the length of a `with` block.

    The folder is made where it is missing, and removed again if nothing was written to it. Blocks
    of one thread may be nested. The lock of a dead process is taken over, and its partial files are
    deleted.

    Raises:
        InUse: If another process writes to it.
        CannotWrite: If the folder cannot be written to.
        InputError: If there is a file in its place, or its file system has no locks.
    """
    folder = Path(folder)
    made: list[Path] = []
    lock: BaseFileLock | None = None
    try:
        with explain_write_errors(folder / LOCK):
            made += _make(folder)
            holder = os.getpid(), threading.get_ident(), folder.resolve()
            if holder not in _held:
                lock = _acquire(folder)
                _held.add(holder)
        try:
            yield
        finally:
            # A forked child holds nothing, so it gives nothing back.
            if lock is not None and os.getpid() == holder[0]:
                _held.discard(holder)
                _release(folder, lock)
    finally:
        for empty in made:
            with suppress(OSError):
                empty.rmdir()


def _make(folder: Path) -> list[Path]:
    """Make a folder and those above it; return the new ones, innermost first."""
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise InputError(f"{folder}: there is a file in the way; choose another folder") from None
    return new


def _acquire(folder: Path) -> BaseFileLock:
    """Take the lock of a folder, name this process beside it, and delete partial files."""
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=_WAIT)
    except Timeout:
        raise InUse(
            f"{folder} is in use by {_name_owner(folder)}; wait for it, or stop it; if its machine "
            f"is lost, delete {folder / LOCK}"
        ) from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        raise InputError(
            f"{folder} lies on a file system without locks ({error.strerror}), where nothing "
            "keeps two processes from writing; choose a folder on another one"
        ) from error
    try:
        if (folder / OWNER).exists():
            logger.warning(
                "%s: taking over from %s, which ended without giving the folder back",
                folder,
                _name_owner(folder),
            )
        delete_partial_files(folder.glob(".*"))  # of a killed process
        owner = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since": datetime.now().isoformat(" ", "minutes"),
            "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]) if sys.argv else "",
        }
        replace_file(folder / OWNER, f"{json.dumps(owner)}\n".encode())
    except BaseException:
        _release(folder, lock)
        raise
    return lock


def _release(folder: Path, lock: BaseFileLock) -> None:
    """Release a lock; its file is deleted before, so that nobody finds a file without a holder."""
    with suppress(OSError):
        (folder / OWNER).unlink()
    if not isinstance(lock, SoftFileLock):  # whose file goes by itself
        with suppress(OSError):  # Windows deletes no open file
            (folder / LOCK).unlink()
    lock.release()


def release_dead(folder: Path | str) -> None:
    """Delete the locks in a folder, and in those below it, whose process is known to be dead."""
    for name in (OWNER, LOCK):
        for path in list(Path(folder).rglob(name)):
            with suppress(OSError):
                path.unlink()


def _name_owner(folder: Path) -> str:
    """Return whom the file beside a lock names, for a line of a message."""
    try:
        owner = json.loads((folder / OWNER).read_text(encoding="utf-8"))
        command = f" ({owner['command']})" if owner["command"] else ""
        text = f"process {owner['pid']} on {owner['host']}{command} since {owner['since']}"
    except (OSError, ValueError, KeyError, TypeError):  # it is just being written, or half
        return "another process"
    return for_terminal(" ".join(text.split()))
