"""Errors of a full or read-only disk, explained: path, reason, bytes needed and bytes free.

The context managers here wrap every write, also those of other libraries.
"""

from __future__ import annotations

import errno
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from cl_graft.errors import CannotWrite

_FULL = {
    errno.ENOSPC: "no space is left there",
    errno.EDQUOT: "the quota there is used up",
    errno.EFBIG: "the file would be larger than this process may write (ulimit -f)",
    errno.EROFS: "the file system is read-only",
}
_DISK_FULL = {errno.ENOSPC, errno.EDQUOT}
_DENIED = {
    errno.EACCES: "permission is denied",
    errno.EPERM: "that is not permitted",
    errno.EISDIR: "a folder stands in the place of the file",
}


@contextmanager
def explain_write_errors(path: Path | str, *, size: int | None = None) -> Iterator[None]:
    """Turn the errors of a full or read-only disk in a `with` block into `CannotWrite`.

    Args:
        path: File or folder that is written.
        size: Bytes to write; None where that is unknown.

    Raises:
        CannotWrite: With the path, the reason, the bytes needed and those free.
    """
    path = Path(path)
    with _explain_errors(path, size, _FULL | _DENIED):
        yield


@contextmanager
def explain_full_disk(folder: Path | str) -> Iterator[None]:
    """Turn the errors of a full disk in a `with` block into a `CannotWrite` that names the folder.

    It is for writers of other libraries, such as TensorBoard's, whose errors name no file.
    """
    folder = Path(folder)
    with _explain_errors(folder, None, _FULL):
        yield


@contextmanager
def _explain_errors(path: Path, size: int | None, reasons: Mapping[int, str]) -> Iterator[None]:
    """Turn the errors that have one of the reasons into `CannotWrite`."""
    try:
        yield
    except CannotWrite:
        raise
    except Exception as error:
        number = error.errno if isinstance(error, OSError) else _number_in(error)
        if number is None or number not in reasons:
            raise
        raise _describe_error(number, path, size) from error


def free_bytes(path: Path | str) -> int | None:
    """Return the bytes that this process may still write where `path` is or will be.

    None where that cannot be seen.
    """
    path = Path(path)
    for place in (path, *path.absolute().parents):
        with suppress(OSError):
            return shutil.disk_usage(place).free
    return None


def _number_in(error: Exception) -> int | None:
    """Return the number of an operating system's error that a library in Rust put into words."""
    found = re.search(r"(?:\(os error |\bOs \{ code: )([0-9]+)", str(error))
    return int(found[1]) if found else None


def _describe_error(number: int, path: Path, size: int | None) -> CannotWrite:
    reason = (_FULL | _DENIED)[number]
    free = free_bytes(path)
    amounts = [
        *([f"{size:,} bytes are needed"] if size is not None else []),
        *([f"{free:,} bytes are free"] if free is not None and number in _DISK_FULL else []),
    ]
    where = f" ({', '.join(amounts)})" if amounts else ""
    explained = CannotWrite(f"cannot write {path}: {reason}{where}; what was saved before is whole")
    explained.errno = number
    return explained
