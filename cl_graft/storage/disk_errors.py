"""Errors of a full or read-only disk, explained: path, reason, bytes needed and bytes free."""

from __future__ import annotations

import errno
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cl_graft.errors import CannotWrite

_FULL = {
    errno.ENOSPC: "no space is left there",
    errno.EDQUOT: "the quota there is used up",
    errno.EFBIG: "the file would be larger than this process may write (ulimit -f)",
    errno.EROFS: "the file system is read-only",
}
_DENIED = {
    errno.EACCES: "permission is denied",
    errno.EPERM: "that is not permitted",
    errno.EISDIR: "a folder stands in the place of the file",
}


@contextmanager
def explain_write_errors(
    path: Path | str, *, size: int | None = None, denied: bool = True
) -> Iterator[None]:
    """Turn the errors of a full or read-only disk in a `with` block into `CannotWrite`.

    Of `size`, the bytes to write, the message tells how many there are. Only with `denied` it
    explains errors of permissions, too.
    """
    reasons = _FULL | _DENIED if denied else _FULL
    try:
        yield
    except CannotWrite:
        raise
    except Exception as error:
        # A library in Rust puts an operating system's error into words.
        worded = re.search(r"(?:\(os error |\bOs \{ code: )([0-9]+)", str(error))
        number = error.errno if isinstance(error, OSError) else worded and int(worded[1])
        if number is None or number not in reasons:
            raise
        free = _free_bytes(path) if number in (errno.ENOSPC, errno.EDQUOT) else None
        known = ((size, "bytes are needed"), (free, "bytes are free"))
        amounts = [f"{count:,} {what}" for count, what in known if count is not None]
        where = f" ({', '.join(amounts)})" if amounts else ""
        explained = CannotWrite(
            f"cannot write {path}: {reasons[number]}{where}; what was saved before is whole"
        )
        explained.errno = number
        raise explained from error


def _free_bytes(path: Path | str) -> int | None:
    """Return the bytes that can be written where `path` is or will be; None if that is unknown."""
    path = Path(path)
    for folder in (path, *path.absolute().parents):
        with suppress(OSError):
            return shutil.disk_usage(folder).free
    return None
