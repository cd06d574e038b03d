"""One writer a folder: while a process writes, a lock file says who it is.

Where the file system has `flock`, the kernel holds the lock: it ends with its process, however
that ends, so neither a reused process number nor a clock that was set can mislead. What the file
says is for people, and for hosts that share a folder without sharing locks: a lock of another host
is never taken over. Where there is no `flock`, the file's existence is the lock, and its owner is
looked up by number and start time.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from cl_graft.errors import InputError, InUse
from cl_graft.store.writing import writing

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

__all__ = ["LOCK", "only_writer"]

logger = logging.getLogger(__name__)

LOCK = ".cl-graft.lock"
"""The lock file's name in its folder."""

_NO_FLOCK = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}
_held: dict[tuple[int, Path], int] = {}
"""Open lock files by thread and folder: who holds a folder may ask for it again."""


@dataclass(frozen=True)
class _Owner:
    """Who writes.

    Attributes:
        pid: The process.
        host: Its host's name.
        machine: What tells hosts of one name apart, where there is something.
        started: When the process started, in a form that no other process of its number has.
        since: When it took the lock, seconds since 1970 by its own clock.
        command: How it was started.
    """

    pid: int
    host: str
    machine: str
    started: str
    since: float
    command: str


@contextmanager
def only_writer(folder: Path | str) -> Iterator[None]:
    """Be the only process that writes to a folder, for the length of a `with` block.

    The folder is made where it is missing, and goes again if nothing was written to it. Blocks of
    one thread may be nested. What a process left that ended without giving the folder back is
    taken over, which is logged.

    Raises:
        InUse: If another process writes to it, or one of another host may.
        CannotWrite: If the folder cannot be written to.
        InputError: If there is a file in its place.
    """
    folder = Path(folder)
    path = folder / LOCK
    made: list[Path] = []
    try:
        with writing(path):
            made += _make(folder)
            place = threading.get_ident(), folder.resolve()
            nested = place in _held
            if not nested:
                _held[place] = _acquire(path)
        try:
            yield
        finally:
            # A forked child holds nothing, so it gives nothing back.
            if not nested and (fd := _held.pop(place, None)) is not None:
                _release(path, fd)
    finally:
        for empty in made:
            with suppress(OSError):
                empty.rmdir()


def _make(folder: Path) -> list[Path]:
    """Make a folder and those above it; return the new ones, innermost first."""
    new = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise InputError(f"{folder}: there is a file in the way; choose another folder") from None
    return new


def _acquire(path: Path) -> int:
    """Return the lock file, open and ours."""
    while True:
        try:
            fd, new = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644), True
        except FileExistsError:
            try:
                fd, new = os.open(path, os.O_RDWR), False
            except FileNotFoundError:  # given back in between
                continue
        ours = new
        try:
            locked = _flock(fd)
            owner = None if new else _read(fd)
            ours = new and locked is not False
            if locked is False:
                raise _in_use(path, owner)
            if locked and not _is_there(path, fd):  # given back in between
                os.close(fd)
                continue
            _refuse_or_take_over(path, owner, new=new, locked=bool(locked))
            _write(fd, _me())
        except BaseException:
            os.close(fd)
            if ours:
                with suppress(OSError):
                    path.unlink()
            raise
        return fd


def _release(path: Path, fd: int) -> None:
    """Give a lock back: the file goes while it is still held, so that nobody finds a free one."""
    there = _is_there(path, fd)
    if fcntl is None:  # Windows deletes no open file
        os.close(fd)
    if there:
        with suppress(OSError):
            path.unlink()
    if fcntl is not None:
        os.close(fd)


def _refuse_or_take_over(path: Path, owner: _Owner | None, *, new: bool, locked: bool) -> None:
    """Refuse a lock file whose owner may still write; log that it is taken over otherwise.

    Without `flock`, two processes that find the same dead owner in the same moment may both take
    over.

    Raises:
        InUse: If the owner may still write.
    """
    if new or (owner is None and locked):
        return
    if owner is None:
        raise _in_use(path, owner, hint=_delete(path))
    if (owner.host, owner.machine) != (_host(), _machine()):
        raise _in_use(path, owner, hint=_delete(path))
    if not locked and _may_live(owner):
        raise _in_use(path, owner)
    logger.warning(
        "%s: taking over from %s, which ended without giving the folder back",
        path.parent,
        _named(owner),
    )


def _in_use(path: Path, owner: _Owner | None, *, hint: str = "wait for it, or stop it") -> InUse:
    who = "another process" if owner is None else f"{_named(owner)}{_age(owner)}"
    return InUse(f"{path.parent} is in use by {who}; {hint}")


def _delete(path: Path) -> str:
    return f"whether it still runs cannot be seen from here; if it does not, delete {path}"


def _named(owner: _Owner) -> str:
    command = f" ({owner.command})" if owner.command else ""
    return f"process {owner.pid} on {owner.host}{command}"


def _age(owner: _Owner) -> str:
    """Say since when, and for how long unless a clock was set back since."""
    try:
        since = datetime.fromtimestamp(owner.since).isoformat(" ", "minutes")
    except (ValueError, OverflowError, OSError):
        return ""
    seconds = time.time() - owner.since
    if seconds < 0:
        return f" since {since} by its clock"
    spans = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))
    size, name = next((span for span in spans if seconds >= span[0]), spans[-1])
    count = int(seconds // size)
    return f" since {since} ({count} {name}{'' if count == 1 else 's'})"


def _flock(fd: int) -> bool | None:
    """Lock an open file; False if another process has it, None if this cannot be done here."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        if error.errno in _NO_FLOCK:
            return None
        raise
    return True


def _is_there(path: Path, fd: int) -> bool:
    """Tell whether the path still leads to the open file."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(fd))
    except OSError:
        return False


def _me() -> _Owner:
    command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]) if sys.argv else ""
    return _Owner(os.getpid(), _host(), _machine(), _started(os.getpid()), time.time(), command)


def _write(fd: int, owner: _Owner) -> None:
    data = f"{json.dumps(asdict(owner))}\n".encode()
    os.lseek(fd, 0, os.SEEK_SET)
    os.ftruncate(fd, 0)
    os.write(fd, data)
    os.fsync(fd)


def _read(fd: int) -> _Owner | None:
    """Return whom a lock file names; None if it is empty or cut short."""
    os.lseek(fd, 0, os.SEEK_SET)
    try:
        known = json.loads(os.read(fd, 1 << 16))
        return _Owner(
            pid=int(known["pid"]),
            host=_line(known["host"]),
            machine=str(known["machine"]),
            started=str(known["started"]),
            since=float(known["since"]),
            command=_line(known["command"]),
        )
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def _line(text: object) -> str:
    """Return text from a file that anyone may have written as part of a line of ours."""
    return "".join(c if c.isprintable() else " " for c in str(text))[:200]


def _host() -> str:
    return socket.gethostname()


def _machine() -> str:
    """Return what tells this host from others of its name; empty where it has nothing."""
    with suppress(OSError):
        return hashlib.sha256(Path("/etc/machine-id").read_bytes()).hexdigest()[:16]
    return ""


def _may_live(owner: _Owner) -> bool:
    """Tell whether an owner on this host may still run; where that cannot be seen, it may."""
    return not _started(os.getpid()) or _started(owner.pid) == owner.started


def _started(pid: int) -> str:
    """Return the start of the system and of a process in it; empty if no such process runs."""
    try:
        start = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        line = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    # A process may have spaces and brackets in its name, which stands in brackets.
    fields = line.rpartition(")")[2].split()
    return "" if fields[0] in "ZX" else f"{start}:{fields[19]}"


def _forget() -> None:
    """Close the locks of the parent in a forked child: they are the parent's alone."""
    for fd in _held.values():
        with suppress(OSError):
            os.close(fd)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
