"""The lock of a folder: one process writes, and a file beside the lock says which one.

The lock ends with its process: the kernel holds it, or, where a file system has no `flock`, its
file names the process. The owner file beside it serves messages, and machines that share a folder
without sharing locks: its owner sets its time every 30 seconds, and what another machine left is
taken over after five minutes. No existing file is opened for writing.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import socket
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
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

_LARGEST = 2**16  # bytes of the owner file that are read
_WAIT = 0.2  # seconds to wait for a lock, as its holder may be about to release it
_BEAT = 30.0  # seconds between two signs of life of an owner
_DEAD = 300.0  # seconds without one after which an owner on another machine counts as dead
_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL}
# Process, thread and folder of each lock that is held: a forked child holds none.
_held: set[tuple[int, int, Path]] = set()
_heart: threading.Thread | None = None


@dataclass(frozen=True)
class _Owner:
    """The process that holds a lock.

    Attributes:
        machine: Hash of what identifies its machine, whatever its host is called; may be empty.
        since: Time when it took the lock, in seconds since 1970 by its own clock.
    """

    pid: int
    host: str
    machine: str
    since: float
    command: str

    @property
    def was_here(self) -> bool:
        """Whether it ran on this machine, so that its lock tells whether it still runs."""
        if self.machine == "" and self.host != socket.gethostname():
            return False
        return self.machine == _machine()


@contextmanager
def only_writer(folder: Path | str) -> Iterator[tuple[str, ...]]:
    """Be the only process that writes to a folder, for the length of a `with` block.

    The folder is made where it is missing, and removed again if nothing was written to it. Blocks
    of one thread may be nested. The lock of a dead process is taken over, and its partial files are
    deleted; the block gets their names.

    Raises:
        InUse: If another process writes to it, or one of another machine may.
        CannotWrite: If the folder cannot be written to.
        InputError: If there is a file in its place, or something else in the place of its lock.
    """
    folder = Path(folder)
    made: list[Path] = []
    deleted: tuple[str, ...] = ()
    lock: BaseFileLock | None = None
    try:
        with explain_write_errors(folder / LOCK):
            made += _make(folder)
            holder = os.getpid(), threading.get_ident(), folder.resolve()
            if holder not in _held:
                lock, deleted = _acquire(folder)
        if lock is not None:
            _held.add(holder)
            _start_beating()
        try:
            yield deleted
        finally:
            # A forked child holds nothing, so it gives nothing back.
            if lock is not None and os.getpid() == holder[0]:
                _held.discard(holder)
                owner = _read(folder)
                if owner is None or (owner.pid, owner.machine) == (holder[0], _machine()):
                    with suppress(OSError):
                        (folder / OWNER).unlink()
                    _unlock(folder, lock)
                else:  # another machine took it over while this one was suspended
                    lock.release()
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


def _acquire(folder: Path) -> tuple[BaseFileLock, tuple[str, ...]]:
    """Take the lock of a folder; return it, and the names of partial files that were deleted."""
    path = folder / LOCK
    lock = FileLock(path)
    try:
        try:
            lock.acquire(timeout=_WAIT)
        except Timeout:
            owner = _read(folder)
            if not isinstance(lock, SoftFileLock) or owner is None or owner.was_here:
                raise _in_use(folder, owner) from None
            # The file of a lock without `flock` stays when its machine is lost.
            if min(_idle_seconds(folder / name) for name in (LOCK, OWNER)) < _DEAD:
                raise _in_use(folder, owner) from None
            path.unlink(missing_ok=True)
            lock.acquire(timeout=_WAIT)
    except Timeout:
        raise _in_use(folder, _read(folder)) from None
    except OSError as error:
        _refuse_planted(path)
        if error.errno not in _NO_LOCKS:
            raise
        raise InputError(
            f"{folder} lies on a file system without locks ({error.strerror}), where nothing "
            "keeps two processes from writing; choose a folder on another one"
        ) from error
    try:
        _refuse_planted(path)
    except InputError:
        lock.release()
        raise
    try:
        _refuse_or_take_over(folder, _read(folder))
        partial = delete_partial_files(sorted(folder.glob(".*")))  # of a killed process
        command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]) if sys.argv else ""
        owner = _Owner(os.getpid(), socket.gethostname(), _machine(), time.time(), command)
        replace_file(folder / OWNER, f"{json.dumps(asdict(owner))}\n".encode())
    except BaseException:
        _unlock(folder, lock)
        raise
    return lock, tuple(path.name for path in partial)


def _refuse_planted(path: Path) -> None:
    """Refuse a link, a folder or a special file in the place of a lock file."""
    with suppress(OSError):
        planted = path.lstat()
        if not stat.S_ISREG(planted.st_mode) or planted.st_nlink > 1:
            raise InputError(
                f"{path} is a link, a folder or a special file; expected nothing or the lock file "
                "of cl_graft, so somebody put it there; look where it comes from, and delete it"
            )


def _unlock(folder: Path, lock: BaseFileLock) -> None:
    """Release a lock; its file is deleted before, so that nobody finds a file without a holder."""
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


def _refuse_or_take_over(folder: Path, owner: _Owner | None) -> None:
    """Refuse a folder whose owner may still write; log that it is taken over otherwise."""
    if owner is None:
        return
    how = "ended without giving the folder back"
    if not owner.was_here:
        idle = _idle_seconds(folder / OWNER)
        if idle < _DEAD:
            raise _in_use(folder, owner)
        how = f"gave its last sign of life {_span(idle)} ago"
    logger.warning("%s: taking over from %s, which %s", folder, _name_owner(owner), how)


def _idle_seconds(path: Path) -> float:
    """Return the age of a file by the clock of its file system, which all machines share."""
    with tempfile.TemporaryFile(dir=path.parent) as new:
        now = os.fstat(new.fileno()).st_mtime
    try:
        return now - path.lstat().st_mtime
    except FileNotFoundError:  # it was given back in between
        return _DEAD


def _start_beating() -> None:
    """Start the thread that gives signs of life, unless it runs; a forked child has none."""
    global _heart
    if _heart is None or not _heart.is_alive():
        _heart = threading.Thread(target=_beat, name="cl_graft locks", daemon=True)
        _heart.start()


def _beat() -> None:
    while True:
        time.sleep(_BEAT)
        for pid, _, folder in list(_held):
            if pid == os.getpid():
                with suppress(OSError, NotImplementedError):
                    os.utime(folder / OWNER, follow_symlinks=False)


def _in_use(folder: Path, owner: _Owner | None) -> InUse:
    who = "another process" if owner is None else f"{_name_owner(owner)}{_age(owner)}"
    hint = "wait for it, or stop it"
    if owner is not None and not owner.was_here:
        files = f"{folder / OWNER} and {folder / LOCK}"
        hint = (
            "whether it still runs cannot be seen from here; if it does not, the folder is taken "
            f"over {_span(_DEAD)} after its last sign of life, or delete {files}"
        )
    return InUse(f"{folder} is in use by {who}; {hint}")


def _name_owner(owner: _Owner) -> str:
    command = f" ({owner.command})" if owner.command else ""
    return f"process {owner.pid} on {owner.host}{command}"


def _age(owner: _Owner) -> str:
    """Say since when and for how long, as far as its clock makes sense."""
    with suppress(ValueError, OverflowError, OSError):
        since = datetime.fromtimestamp(owner.since).isoformat(" ", "minutes")
        return f" since {since} ({_span(max(0.0, time.time() - owner.since))})"
    return ""


def _span(seconds: float) -> str:
    """Return a length of time in its largest whole unit, as ``"5 minutes"``."""
    units = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))
    size, name = next((unit for unit in units if seconds >= unit[0]), units[-1])
    count = int(seconds // size)
    return f"{count} {name}{'' if count == 1 else 's'}"


def _read(folder: Path) -> _Owner | None:
    """Return whom the file beside a lock names; None if there is none, or none that can be read."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        opened = os.open(folder / OWNER, flags)
    except OSError:
        return None
    try:
        known = json.loads(os.read(opened, _LARGEST))
        return _Owner(
            pid=int(known["pid"]),
            host=_line(known["host"]),
            machine=str(known["machine"]),
            since=float(known["since"]),
            command=_line(known["command"]),
        )
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    finally:
        os.close(opened)


def _line(text: object) -> str:
    """Return text from a file that anyone may have written, for a line of ours."""
    return for_terminal(" ".join(str(text)[:200].split()))[:200]


def _machine() -> str:
    """Return what tells this machine from others; may be empty.

    Containers often have no machine id; the system's last start is one as well.
    """
    for path in ("/etc/machine-id", "/proc/sys/kernel/random/boot_id"):
        with suppress(OSError):
            if (known := Path(path).read_bytes().strip()) not in (b"", b"uninitialized"):
                return hashlib.sha256(known).hexdigest()[:16]
    return ""
