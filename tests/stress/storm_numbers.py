"""NaN in every phase, and every phase without enough memory."""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path

import torch
from storm_cases import TASKS, Cases, Place, bank_files, readable
from torch import Tensor
from torture_children import tell
from torture_report import Row

from cl_graft.localization import LOCALIZERS
from cl_graft.models import TaskModel

_PHASES = {
    "dense": ("dense fine-tuning", "step 3", "lr 0."),
    "localize": ("localization", "step 2", "lr 0."),
    "train": ("region training", "step 3", "lr 0."),
    "evaluate": ("evaluation",),
}
"""Phases as they are reported, and what must be told of a NaN in them."""


def not_a_number(place: Place, *, full: bool) -> Row:
    """Let the model answer NaN in the midst of a phase of the second task."""
    cases = Cases("NaN in a phase of the second task", place)
    plans = [((), phase, told) for phase, told in _PHASES.items()]
    plans += [(("--strategy", "naive"), "train", ("training", "step 3", "lr 0."))]
    plans += [(("--strategy", "independent"), "dense", _PHASES["dense"])]
    if full:
        plans += [
            (("--set", f"grafting.localizer={name}"), "localize", ("localization", name))
            for name, row in LOCALIZERS.items()
            if row.needs_gradients
        ]
        plans += [
            (("--set", "model.precision=fp16"), phase, told) for phase, told in _PHASES.items()
        ]
    for more, phase, expected in plans:
        _strike(cases, place, more, phase, _poison, ("nan", *expected))
    return cases.row("stops with phase, step, rate and task; goes on to the same bits")


def no_memory(place: Place) -> Row:
    """Take away the memory (RLIMIT_AS) in the midst of a phase of the second task."""
    cases = Cases("out of memory in a phase of the second task", place)
    plans = [((), phase) for phase in _PHASES]
    plans += [(("--strategy", "naive"), "train"), (("--strategy", "independent"), "dense")]
    for more, phase in plans:
        _strike(cases, place, more, phase, _starve, ("out of memory in", "lower", "--resume"))
    return cases.row("stops with phase, task and what to lower; goes on to the same bits")


def _strike(
    cases: Cases,
    place: Place,
    more: tuple[str, ...],
    phase: str,
    trouble: Callable[[], None],
    expected: tuple[str, ...],
) -> None:
    """Count one case: trouble in a phase, and what is left of the run."""
    out = place.fresh("numbers")
    told = tell(
        *place.run(out, *more), watch=_second_time(phase, 2 - (phase == "evaluate"), trouble)
    )
    strategy = more[1] if more[:1] == ("--strategy",) else "grafting"
    folder = out / strategy / "seed0"
    grafting = strategy == "grafting"
    held = {
        "stopped": told.code == 2,
        "told_what_and_where": all(word in told.sentence.lower() for word in expected),
        "named_the_task": repr(TASKS[1]) in told.sentence,
        "kept_the_first_task": not grafting or readable(folder / "bank", 1 + (phase == "evaluate")),
    }
    again = tell("run", "--resume", folder)
    held["went_on"] = again.code == 0
    if grafting:
        held["the_same_bits"] = bank_files(folder / "bank") == place.undisturbed(*more)
    cases.check(f"{' '.join(more)} {phase}".strip(), told, **held)


def _second_time(phase: str, step: int, trouble: Callable[[], None]) -> Callable[[str, int], None]:
    """Return what makes trouble once a step of a phase is reported for the second task."""
    first: set[tuple[str, int]] = set()

    def watch(now: str, number: int) -> None:
        if (now, number) == (phase, step):
            if (now, number) in first:
                trouble()
            first.add((now, number))

    return watch


def _poison() -> None:
    """Let every model answer NaN from now on."""
    forward = TaskModel.forward

    def poisoned(self: TaskModel, *arguments: object, **more: object) -> Tensor:
        return forward(self, *arguments, **more) * float("nan")  # type: ignore[arg-type]

    TaskModel.forward = poisoned


def _starve() -> None:
    """Leave the process 32 MiB more than it has, and let every model need 256 MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + 2**25
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    forward = TaskModel.forward

    def hungry(self: TaskModel, *arguments: object, **more: object) -> Tensor:
        torch.empty(2**28, dtype=torch.uint8)
        return forward(self, *arguments, **more)  # type: ignore[arg-type]

    TaskModel.forward = hungry
