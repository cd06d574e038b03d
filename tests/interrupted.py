"""Phases that are interrupted in memory, and runs that are interrupted in their folders."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import file_hashes

from cl_graft.lab.experiments.folders import curves_folder, find_run, run_folder, stored_config
from cl_graft.lab.results.run_results import RunResult
from cl_graft.runtime.checkpoints import Checkpoint, State
from cl_graft.runtime.progress import Step, silent
from cl_graft.settings import ExperimentConfig
from cl_graft.storage.files import is_partial, pack, unpack

_FORMAT = "test"


KILLED_WRITER = """
import os, pathlib, signal, sys
from cl_graft.storage import only_writer
with only_writer(pathlib.Path(sys.argv[1])):
    os.kill(os.getpid(), signal.SIGKILL)
"""
"""A process that is killed while it is the only writer of the folder that it is given."""


class Trip(RuntimeError):
    """The interruption."""


def tripping(phase: str, number: int, task: str | None = None) -> Callable[[Step], None]:
    """Return progress that trips once, at a step of a phase."""
    left = [True]

    def progress(step: Step) -> None:
        if left and (step.phase, step.step) == (phase, number) and task in (None, step.task):
            left.clear()
            raise Trip

    return progress


def interrupt(
    config: ExperimentConfig, strategy: str, out: Path, progress: Callable[[Step], None]
) -> Path:
    """Run a strategy until its progress trips; return the run's folder."""
    from cl_graft.lab.experiments.run import run

    with pytest.raises(Trip):
        run(config, strategy=strategy, seed=0, out=out, progress=progress)
    return run_folder(out, strategy, 0)


def resume_run(
    place: Path, *, trust_remote_code: bool = False, progress: Callable[[Step], None] = silent
) -> RunResult:
    """Go on with a run as `cl-graft run --resume` does."""
    from cl_graft.lab.experiments.run import run

    folder = find_run(place)
    config = stored_config(folder, trust_remote_code=trust_remote_code)
    return run(config, out=folder.parent.parent, progress=progress)


class KeptPhases:
    """Keeps every offered state as the bytes of a file, and trips once after some offers."""

    def __init__(self, *, trip_after: int | None = None) -> None:
        self.kept: dict[str, bytes] = {}
        self.offers = 0
        self.trip_after = trip_after

    def at(self, key: str) -> Checkpoint:
        return _Place(self, key)

    def poll(self) -> None:
        pass


@dataclass
class _Place:
    phases: KeptPhases
    key: str

    def load(self) -> State | None:
        if self.key not in self.phases.kept:
            return None
        head, tensors = unpack(self.phases.kept[self.key], format=_FORMAT, name=self.key)
        values: Any = head["values"]
        return tensors, values

    def offer(self, state: Callable[[], State], *, last: bool = False) -> None:
        tensors, values = state()
        self.phases.kept[self.key] = pack(tensors, {"values": dict(values)}, format=_FORMAT)
        self.phases.offers += 1
        if self.phases.offers == self.phases.trip_after:
            raise Trip


def ends_of_steps(learn: Callable[[KeptPhases], object]) -> int:
    """Return how often a phase offers its state when nothing interrupts it."""
    phases = KeptPhases()
    learn(phases)
    return phases.offers


def outcome_of(folder: Path) -> dict[str, Any]:
    """Return all that a run left, without what tells the time or counts processes."""
    results = json.loads((folder / "results.json").read_text())
    # Hashes of files beside are those of files that tell the time.
    for timed in ("seconds", "seconds_saved", "processes", "checksum", "files"):
        del results[timed]
    del results["config"]["output"]
    with (folder / "metrics.csv").open() as file:
        table = [{k: v for k, v in row.items() if k != "seconds"} for row in csv.DictReader(file)]
    assert not [path for path in folder.rglob("*") if is_partial(path)]
    return {
        "names": sorted(path.name for path in folder.iterdir()),
        "results": results,
        "table": table,
        "bank": file_hashes(folder / "bank"),
        "points": {
            tag: points
            for tag, points in points_of(curves_folder(folder)).items()
            if not tag.startswith("8_cost/seconds")
        },
    }


def points_of(folder: Path) -> dict[str, list[tuple[int, Any]]]:
    """Return step and value of all that a log holds, by tag."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"images": 0, "scalars": 0, "tensors": 0})
    events.Reload()
    tags = events.Tags()
    points: dict[str, list[tuple[int, Any]]] = {}
    for tag in tags["scalars"]:
        points[tag] = sorted((point.step, point.value) for point in events.Scalars(tag))
    for tag in tags["tensors"]:
        points[tag] = sorted((p.step, p.tensor_proto.string_val[0]) for p in events.Tensors(tag))
    return points
