"""`cl-graft WORDS` in the current folder, killed at one of the calls by which it changes files.

    write_points.py AT LOG WORDS...

AT is the number of the call, and LOG a file outside of the folder to which calls are written, one a
line. Counted are calls of the main thread below the folder: creating and opening for writing, every
write of a Python file (before it, and with half of it on disk), flushing to disk, renaming,
linking, truncating, deleting, and making and removing folders. TensorBoard writes in a thread of
its own, whose calls come in no fixed order; they are not counted.
"""

from __future__ import annotations

import builtins
import io
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

_ALWAYS = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate"}
_CHANGING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Trap:
    """Number the calls of this process from now on, and kill it at one of them."""

    def __init__(self, at: int, log: str) -> None:
        self._root = f"{os.getcwd()}{os.sep}"
        self._at, self._count = at, 0
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        self._open, self._fsync = io.open, os.fsync
        sys.addaudithook(self._audit)
        for home in (io, builtins):
            home.open = self._opened  # type: ignore[attr-defined]
        os.fsync = self._synced

    def point(self, call: str, path: object, last_words: Callable[[], None] | None = None) -> None:
        """Count a call, and die if it is the one."""
        if threading.current_thread() is not threading.main_thread():
            return
        try:
            full = os.path.realpath(os.path.join(os.getcwd(), os.fsdecode(path)))  # type: ignore[arg-type]
        except (TypeError, ValueError):
            return
        if not f"{full}{os.sep}".startswith(self._root):
            return
        os.write(self._log, f"{call} {full.removeprefix(self._root)}\n".encode())
        if self._count == self._at:
            if last_words is not None:
                last_words()
            os.kill(os.getpid(), signal.SIGKILL)
        self._count += 1

    def _audit(self, event: str, values: tuple[Any, ...]) -> None:
        if event in _ALWAYS:
            self.point(event, values[0])
        elif event == "open":
            path, mode, flags = values
            changes = set(mode) & set("wax+") if isinstance(mode, str) else flags & _CHANGING
            if changes and not isinstance(path, int):
                self.point("open", path)

    def _opened(self, file: Any, mode: str = "r", *given: Any, **named: Any) -> Any:
        opened = self._open(file, mode, *given, **named)
        if isinstance(file, int) or "b" not in mode or "+" in mode or not set(mode) & set("wax"):
            return opened
        if not isinstance(opened, io.BufferedWriter):
            return opened
        return _Writer(opened.detach(), self, file)

    def _synced(self, fd: int) -> None:
        self.point("fsync", f"/proc/self/fd/{fd}")
        self._fsync(fd)


class _Writer(io.BufferedWriter):
    """A file of which half a write is on disk when the process is killed in it."""

    def __init__(self, raw: Any, trap: Trap, path: object) -> None:
        super().__init__(raw)
        self._trap, self._path = trap, path

    def write(self, data: Any, /) -> int:
        def half() -> None:
            io.BufferedWriter.write(self, memoryview(data)[: len(memoryview(data)) // 2])
            self.flush()

        self._trap.point("write", self._path)
        self._trap.point("half of a write", self._path, half)
        return super().write(data)


if __name__ == "__main__":
    from cl_graft.cli import main

    number, log, *words = sys.argv[1:]
    sys.argv = ["cl-graft", *words]
    Trap(int(number), log)
    main()
