"""Progress of long phases, with the time left: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from cl_graft.cli.output import Output

if TYPE_CHECKING:
    from cl_graft.experiments.progress import Step

__all__ = ["Meter", "meter"]

_LINE_EVERY_SECONDS = 10.0
_PHASES = {
    "dense": "independent fine-tuning",
    "choose": "independent fine-tuning (grid)",
    "warm-up": "fit of the head",
    "localize": "localization",
    "train": "training",
    "evaluate": "evaluation",
    "reused": "was done before",
}


class Meter:
    """Shows phases while they run.

    On a terminal there is one bar for all tasks and one for the phase that runs, each with the
    time it still takes. Elsewhere (a log, a pipe) a phase gets a line when it starts, when it is
    over, and every ten seconds in between.

    Args:
        output: Where to show it.
        tasks: Tasks to learn, over all strategies and seeds; 0 if that is not known.
    """

    def __init__(self, output: Output, *, tasks: int = 0) -> None:
        self._console = output.notes
        self._tasks = tasks
        self._learned: set[tuple[str, int, str]] = set()
        self._phase = ""
        self._started = self._last_line = time.monotonic()
        self._bars: Progress | None = None
        self._all: TaskID | None = None
        self._one: TaskID | None = None
        if self._console.is_terminal and not output.quiet:
            self._bars = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
                console=self._console,
                transient=True,
            )

    def step(self, step: Step) -> None:
        """Take a report of `cl_graft.experiments`."""
        phase = _PHASES.get(step.phase, step.phase)
        name = f"{step.strategy} seed {step.seed}"
        if step.note:
            self._console.print(f"{name}: {step.note}", markup=False, soft_wrap=True)
            return
        self._learned.add((step.strategy, step.seed, step.task))
        self.phase(f"{name} · {step.task} · {phase}" if step.task else f"{name} {phase}",
                   step.step, step.steps)  # fmt: skip

    def phase(self, phase: str, step: int, steps: int) -> None:
        """Report that `step` of `steps` of a phase are done."""
        new = phase != self._phase
        if new:
            self._phase, self._started = phase, time.monotonic()
        if self._bars is None:
            self._line(step, steps, new=new)
            return
        if self._all is None and self._tasks:
            self._all = self._bars.add_task("all tasks", total=self._tasks)
        if self._all is not None:
            self._bars.update(self._all, completed=max(0, len(self._learned) - 1))
        if self._one is None or new:
            if self._one is not None:
                self._bars.remove_task(self._one)
            self._one = self._bars.add_task(phase, total=steps)
        self._bars.update(self._one, completed=step, total=steps)

    def _line(self, step: int, steps: int, *, new: bool) -> None:
        now = time.monotonic()
        if not new and step < steps and now - self._last_line < _LINE_EVERY_SECONDS:
            return
        self._last_line = now
        passed = now - self._started
        time_left = ""
        if 0 < step < steps and passed > 1:
            time_left = f", {_duration(passed / step * (steps - step))} left"
        elif step >= steps and passed > 1:
            time_left = f", took {_duration(passed)}"
        place = f"[{len(self._learned)}/{self._tasks}] " if self._tasks else ""
        line = f"{place}{self._phase}: {step}/{steps}{time_left}"
        self._console.print(line, markup=False, soft_wrap=True)


@contextmanager
def meter(output: Output, *, tasks: int = 0) -> Iterator[Meter]:
    """Show progress for a `with` block; `tasks` as in `Meter`."""
    made = Meter(output, tasks=tasks)
    if made._bars is None:
        yield made
        return
    with made._bars:
        yield made


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d} min" if minutes else f"{rest} s"
