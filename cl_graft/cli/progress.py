"""Progress of long phases, with the time left: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

from rich import progress as bars

from cl_graft.cli.output import Output
from cl_graft.runtime.escaping import for_terminal
from cl_graft.runtime.progress import PHASE_NAMES, Step

_LINE_EVERY_SECONDS = 10.0


@dataclass
class _Phase:
    """The phase that runs: its name, when it began, when a line last told of it, and its bar."""

    name: str
    started: float
    last_line: float
    bar: bars.TaskID | None = None


class Meter:
    """Shows phases while they run, of so many tasks over all strategies and seeds; 0 if unknown.

    On a terminal there is a bar for all tasks and one for the phase that runs. Elsewhere (a log, a
    pipe) a phase gets a line when it starts, when it is over, and every ten seconds in between.
    """

    def __init__(self, output: Output, *, tasks: int = 0) -> None:
        self._console = output.notes
        self._tasks = tasks
        self._learned: set[tuple[str, int, str]] = set()
        self._running: _Phase | None = None
        self._bars: bars.Progress | None = None
        self._all: bars.TaskID | None = None
        if self._console.is_terminal and not output.quiet:
            self._bars = bars.Progress(
                bars.TextColumn("{task.description}", markup=False),
                bars.BarColumn(),
                bars.MofNCompleteColumn(),
                bars.TimeElapsedColumn(),
                bars.TextColumn("left"),
                bars.TimeRemainingColumn(),
                console=self._console,
                transient=True,
            )

    def step(self, step: Step) -> None:
        """Take a report of `cl_graft.lab.experiments`."""
        name = f"{step.strategy} seed {step.seed}"
        if step.note:
            self._tell(f"{name}: {step.note}")
        elif step.phase == "over":
            self._tell(f"[{step.step}/{step.steps}] {step.job}: over")
        else:
            phase = PHASE_NAMES.get(step.phase, step.phase)
            if step.task:  # untrained models are evaluated, too
                self._learned.add((step.strategy, step.seed, step.task))
            shown = f"{name} · {step.task} · {phase}" if step.task else f"{name} {phase}"
            self.phase(shown, step.step, step.steps)

    def phase(self, name: str, step: int, steps: int) -> None:
        """Report that `step` of `steps` of a phase are done."""
        running = self._running
        new = running is None or running.name != name
        if running is None or new:
            if self._bars is not None and running is not None and running.bar is not None:
                self._bars.remove_task(running.bar)
            now = time.monotonic()
            running = self._running = _Phase(name, now, now)
        if self._bars is None:
            self._line(running, step, steps, new=new)
            return
        if self._all is None and self._tasks:
            self._all = self._bars.add_task("all tasks", total=self._tasks)
        if self._all is not None:
            self._bars.update(self._all, completed=max(0, len(self._learned) - 1))
        if running.bar is None:
            running.bar = self._bars.add_task(for_terminal(name), total=steps)
        self._bars.update(running.bar, completed=step, total=steps)

    def _line(self, running: _Phase, step: int, steps: int, *, new: bool) -> None:
        now = time.monotonic()
        if not new and step < steps and now - running.last_line < _LINE_EVERY_SECONDS:
            return
        running.last_line = now
        passed = now - running.started
        time_left = ""
        if 0 < step < steps and passed > 1:
            time_left = f", {duration(passed / step * (steps - step))} left"
        elif step >= steps and passed > 1:
            time_left = f", took {duration(passed)}"
        number = f"[{len(self._learned)}/{self._tasks}] " if self._tasks else ""
        self._tell(f"{number}{running.name}: {step}/{steps}{time_left}")

    def _tell(self, line: str) -> None:
        self._console.print(for_terminal(line), markup=False, soft_wrap=True)


@contextmanager
def show_progress(output: Output, *, tasks: int = 0) -> Iterator[Meter]:
    """Show progress for a `with` block; `tasks` as in `Meter`."""
    meter = Meter(output, tasks=tasks)
    with meter._bars or nullcontext():
        yield meter


def duration(seconds: float) -> str:
    """Return a time as people read it: ``"45 s"``, ``"3:20 min"``, ``"2:05 h"``."""
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60}:{minutes % 60:02d} h"
    return f"{minutes}:{rest:02d} min" if minutes else f"{rest} s"
