"""Processes of the command line to be tortured: forked, as imports take longer than runs do.

A child is a process of its own, with its own memory, limits, signals and files. What it says is
kept, and a function of the torturer is called in it whenever a phase reports where it stands.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import torch

Watch = Callable[[str, int], None]
"""Called in the child as (phase, step)."""


@dataclass(frozen=True)
class Told:
    """How a child ended."""

    code: int
    out: str
    err: str

    @property
    def sentence(self) -> str:
        """The line with which it told its user why it stopped; the last one if there is none."""
        lines = [line.strip() for line in self.err.splitlines() if line.strip()]
        own = [line for line in lines if line.startswith("cl-graft: ")]
        return (own or lines or [""])[-1].removeprefix("cl-graft: ")


class Child:
    """A forked process, and the ends of two pipes that it writes to."""

    def __init__(self, pid: int, pipes: tuple[int, int]) -> None:
        self.pid = pid
        self._pipes = pipes
        self._told = [b"", b""]
        for pipe in pipes:
            os.set_blocking(pipe, False)

    def ended(self) -> Told | None:
        """Return how the child ended; None while it runs. It can be asked once after the end."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        self._listen()
        if not pid:
            return None
        for pipe in self._pipes:
            os.close(pipe)
        out, err = (text.decode(errors="replace") for text in self._told)
        return Told(os.waitstatus_to_exitcode(status), out, err)

    def wait(self, *, seconds: float = 180.0) -> Told:
        """Wait for the end; what takes longer than that is killed, and its code is -9."""
        end = time.monotonic() + seconds
        while (told := self.ended()) is None:
            if time.monotonic() > end:
                self.send(signal.SIGKILL)
            time.sleep(0.01)
        return told

    def send(self, number: int) -> None:
        """Send a signal."""
        os.kill(self.pid, number)

    def _listen(self) -> None:
        for place, pipe in enumerate(self._pipes):
            with suppress(BlockingIOError):
                while part := os.read(pipe, 1 << 16):
                    self._told[place] += part


def prepare() -> None:
    """Import all that children need, in the parent; no thread may be started here."""
    import cl_graft.lab.experiments.comparison.compare  # noqa: F401

    torch.set_num_threads(1)
    os.environ |= {
        "COLUMNS": "400",
        "HF_HUB_OFFLINE": "1",
        "NO_COLOR": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }


def start(
    *arguments: object, watch: Watch | None = None, first: Callable[[], None] | None = None
) -> Child:
    """Start `cl-graft ARGUMENTS` in a child."""
    # Pipes, as limits on files would hold for what the child says, too.
    pipes = (os.pipe(), os.pipe())
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        for pipe in pipes:
            os.close(pipe[1])
        return Child(pid, (pipes[0][0], pipes[1][0]))
    code = 1
    try:
        for number, pipe in enumerate(pipes, start=1):
            os.dup2(pipe[1], number)
        # The parent's streams may be files that can be sought in; pipes cannot.
        sys.stdout, sys.stderr = (
            open(number, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
            for number in (1, 2)
        )
        if first is not None:
            first()
        if watch is not None:
            _watch(watch)
        sys.argv = ["cl-graft", *map(str, arguments)]
        from cl_graft.cli import main

        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def tell(
    *arguments: object, watch: Watch | None = None, first: Callable[[], None] | None = None
) -> Told:
    """Run `cl-graft ARGUMENTS` in a child to its end."""
    return start(*arguments, watch=watch, first=first).wait()


def _watch(watch: Watch) -> None:
    from cl_graft.settings.progress_reporter import ProgressReporter

    report = ProgressReporter.phase

    def phase(self: ProgressReporter, phase: str, step: int, steps: int) -> None:
        report(self, phase, step, steps)
        watch(phase, step)

    ProgressReporter.phase = phase
