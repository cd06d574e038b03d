"""Calls by which a process changes files, numbered, so that it can be killed at each of them.

Counted are calls of the main thread below one folder: creating and opening for writing, every write
of a Python file (before it, and with half of it on disk), flushing to disk, renaming, linking,
truncating, deleting, and making and removing folders. TensorBoard writes in a thread of its own,
whose calls come in no fixed order; they are not counted.
"""

from __future__ import annotations

import builtins
import io
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

_ALWAYS = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate"}
_CHANGING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Counter:
    """A pipe through which a child tells its calls, one a line."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        self._text = b""

    def tell(self, call: str) -> None:
        """Tell a call, in the child."""
        os.write(self._write, f"{call}\n".encode())

    def listen(self) -> None:
        """Take what was told so far, so that the pipe does not fill."""
        try:
            while part := os.read(self._read, 1 << 16):
                self._text += part
        except BlockingIOError:
            pass

    def calls(self) -> list[str]:
        """Return what was told, and close the pipe."""
        self.listen()
        os.close(self._read)
        os.close(self._write)
        return self._text.decode(errors="replace").splitlines()


def trap(root: Path, *, at: int | None = None, tell: Callable[[str], None] | None = None) -> None:
    """Number the calls of this process from now on, and kill it at one of them."""
    _Trap(root, at, tell).set()


class _Trap:
    def __init__(self, root: Path, at: int | None, tell: Callable[[str], None] | None) -> None:
        self._root = f"{root.resolve()}{os.sep}"
        self._at, self._tell, self._count = at, tell, 0
        self._open, self._fsync = io.open, os.fsync

    def set(self) -> None:
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
        if self._tell is not None:
            self._tell(f"{call} {full.removeprefix(self._root)}")
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

    def __init__(self, raw: Any, trap: _Trap, path: object) -> None:
        super().__init__(raw)
        self._trap, self._path = trap, path

    def write(self, data: Any, /) -> int:
        def half() -> None:
            io.BufferedWriter.write(self, memoryview(data)[: len(memoryview(data)) // 2])
            self.flush()

        self._trap.point("write", self._path)
        self._trap.point("half of a write", self._path, half)
        return super().write(data)
