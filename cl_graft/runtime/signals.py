"""Handling of Ctrl-C and SIGTERM: a run saves its state first and says how to resume it.

A signal is noted, and the run stops where it next offers its state. A second one, or one that comes
while there is nothing to save yet, stops at once.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

_ASKED = b"cl-graft: stopping as soon as this step is saved; once more to stop at once\n"


class Stopped(BaseException):
    """The process was asked to stop; `command`, if any, goes on. No `Exception`, so no failure."""

    def __init__(self, number: int, command: str = "") -> None:
        super().__init__(number)
        self.signal = signal.Signals(number)
        self.command = command

    def __str__(self) -> str:
        how = f"; go on with: {self.command}" if self.command else ""
        return f"stopped by {self.signal.name}{how}"


class Stop:
    """Whether the process was asked to stop, by which signal, and whether a run looks here."""

    def __init__(self) -> None:
        self.asked: int | None = None
        self.saves = False

    def check(self) -> None:
        """Stop here, by `Stopped`, if that was asked."""
        if self.asked is not None:
            raise Stopped(self.asked)

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """Note a signal, or stop at once where there is nothing to save or it is the second."""
        del frame
        if self.asked is not None or not self.saves:
            raise Stopped(number)
        self.asked = number
        os.write(2, _ASKED)

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Let signals wait until the next state is offered, for a `with` block."""
        self.saves = True
        try:
            yield
        finally:
            self.saves = False


@contextmanager
def stoppable(command: str = "", folder: Path | None = None) -> Iterator[Stop]:
    """Catch SIGINT and SIGTERM for a `with` block; `Stopped` says by which command to go on.

    The command is shown if a config was written to the folder; without one nothing can go on.
    """
    stop = Stop()
    kinds = (signal.SIGINT, signal.SIGTERM)
    if threading.current_thread() is not threading.main_thread():
        yield stop  # signals reach the main thread alone
        return
    before = {kind: signal.signal(kind, stop.on_signal) for kind in kinds}
    try:
        yield stop
    except Stopped as stopped:
        if folder is None:
            raise
        begun = (folder / "config.json").is_file()
        raise Stopped(stopped.signal, command if begun else "") from None
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)
