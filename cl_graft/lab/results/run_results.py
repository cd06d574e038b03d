"""The results of a run, `results.json`, which reports and banks read."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from collections import Counter
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from cl_graft.grafts.hashing import environment, file_sha256
from cl_graft.lab.results.measures import has_one_metric, measure, measure_title, tasks_by_metric
from cl_graft.lab.results.tables import Table, make_matrix, points
from cl_graft.lab.results.task_files import ANSWERS, CURVES, ERRORS, NUMBERS
from cl_graft.settings.run_files import (
    RESULTS,
    RESULTS_FORMAT,
    RunRecord,
    read_values,
    report_missing_parts,
)
from cl_graft.storage.files import dump_json, replace_file
from cl_graft.training.learnable_task import Passes, total_passes

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

Matrix = list[list[float | None]]

MOST_WHOLE = 20
"""Rows up to which a matrix is written as it is, above as what each row changes.

A strategy that forgets nothing changes one score a task, so its results grow with the number of
tasks and not with its square.
"""

BESIDE = (
    *("config.json", "metrics.csv", "summary.md"),
    *(ANSWERS.name, ERRORS.name, NUMBERS.name, CURVES.name),
)
"""Files of a run whose SHA-256 `results.json` holds."""


@dataclass(frozen=True, kw_only=True, repr=False)
class RunResult(RunRecord):
    """The outcome of one strategy with one seed; fractions, seconds and bytes.

    Attributes, beside those of `RunRecord`:
        R: R[i][j] is the score on task j after learning task i; null where there is no answer.
        other_scores: Scores at the end by other metrics than the task's own, by task and metric;
            see `cl_graft.kinds.kind.Kind.reported_metrics`.
        ece: Expected calibration errors, cells as in `R`.
        average_accuracy: Mean of the last row of `R`, in the metric that all tasks have. It and the
            three measures after it are null where tasks have several metrics:
            `cl_graft.lab.results.measures.measure` has them by metric.
        backward_transfer: See `cl_graft.metrics.backward_transfer`.
        forward_transfer: See `cl_graft.metrics.forward_transfer`; null where a task has a head of
            its own that it trains.
        forgetting: See `cl_graft.metrics.forgetting`.
        metrics: Name of the metric of each task.
        baseline: Scores before any training, for prompts and in the scenario ``"domain"``.
        coordinates: Region sizes by task: claimed, owned, density, share lost to earlier tasks.
        overlap: |γ_i ∩ γ_j| / |γ_j| in row i and column j, for grafting, of up to 20 tasks.
        bytes: Bytes that each task adds to what is stored.
        seconds: Wall time by task and phase, as spent by this run.
        seconds_saved: Wall time that phases answered by the cache took when they were computed.
        schedules: Steps, batch size and learning rate by task.
        machine: Description of the machine.
        command: Command line that started the run.
        passes: Rows that went through the model to learn each task, by task and phase:
            ``"forward_backward"`` (differentiated) and ``"forward"`` (answered alone).
        settings: Settings of the strategy alone, such as the weight of a penalty.
        data: Rows used, cut and left out of each task; see `cl_graft.settings.data_report`.
        tuning: How the strategy's own values were chosen, see
            `cl_graft.lab.experiments.comparison.tuning.Tuning`; empty if they were not.
        routed: Share of the test rows that their own task answered, cells as in `R`, if the
            strategy picks tasks by itself; its answers are then among the labels of all tasks
            learned so far, and what another task answers is wrong.
        passes_per_row: Number of forward passes that answered a test row after the last task.
        reliability: At the end, by task: ``"counts"`` of test rows, mean ``"confidence"`` and
            ``"accuracy"`` in each bin of confidence (see `cl_graft.metrics.reliability_bins`), null
            where a bin is empty; tasks without labels lack.
        processes: Number of processes of the run: 1, and 1 more each time that it was resumed.
            Where it is above 1, `seconds` are those of the process that finished a phase.
    """

    R: Matrix
    ece: Matrix
    average_accuracy: float | None
    backward_transfer: float | None
    forward_transfer: float | None
    forgetting: float | None
    metrics: dict[str, str]
    baseline: list[float | None]
    coordinates: dict[str, dict[str, float]]
    overlap: Matrix | None
    bytes: dict[str, int]
    seconds: dict[str, dict[str, float]]
    seconds_saved: dict[str, dict[str, float]]
    schedules: dict[str, dict[str, Any]]
    machine: dict[str, Any]
    command: str = field(default="")
    passes: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    data: dict[str, dict[str, Any]] = field(default_factory=dict)
    processes: int = 1
    settings: dict[str, Any] = field(default_factory=dict)
    tuning: dict[str, Any] = field(default_factory=dict)
    routed: Matrix | None = None
    passes_per_row: float = 1.0
    reliability: dict[str, dict[str, list[float | None]]] = field(default_factory=dict)
    other_scores: dict[str, dict[str, float]] = field(default_factory=dict)

    @property
    def routing_accuracy(self) -> float | None:
        """Mean of the last row of `routed`; None if the strategy was given the task."""
        shares = [share for share in (self.routed[-1] if self.routed else []) if share is not None]
        return sum(shares) / len(shares) if shares else None

    @property
    def total_passes(self) -> Passes:
        """Rows of all tasks and phases, with those of phases that the cache answered."""
        phases = (phases for task in self.passes.values() for phases in task.values())
        return total_passes(Passes(**phase) for phase in phases)

    def find_seconds(self, task: str) -> dict[str, float]:
        """Return the wall time of each phase of a task, with what the cache's phases took once."""
        spent = Counter(self.seconds.get(task, {}))
        spent.update(self.seconds_saved.get(task, {}))
        return dict(spent)

    @property
    def total_seconds(self) -> float:
        """Wall time of all phases, with what those took that the cache answered."""
        return sum(sum(self.find_seconds(task).values()) for task in self.seconds)

    def to_pandas(self) -> pandas.DataFrame:
        """Return R as a table: a row for each task learned, a column for each task tested."""
        import pandas

        learned = self.tasks[: len(self.R)]
        index = pandas.Index(learned, name="after")
        return pandas.DataFrame(self.R, index=index, columns=learned, dtype=float)

    def plot(self) -> Figure:
        """Draw R as a heatmap."""
        from cl_graft.lab.figures import r_matrix_heatmap

        names = self.tasks[: len(self.R)]
        return r_matrix_heatmap(self.R, names, title=f"R of {self.strategy}")

    def __repr__(self) -> str:
        learned = f"{len(self.R)} of {len(self.tasks)} tasks"
        averages = (
            f"{measure_title('average', metric)} {points(measure(self, 'average', metric))}"
            for metric in tasks_by_metric(self.metrics)
        )
        return f"RunResult({self.strategy!r}, seed {self.seed}, {learned}, {', '.join(averages)})"

    def _repr_html_(self) -> str:
        return score_table(self).html()


def score_table(result: RunResult) -> Table:
    """Return R as a table, scores in points."""
    learned = result.tasks[: len(result.R)]
    columns = learned
    if not has_one_metric(result.metrics):
        columns = [f"{task} ({result.metrics[task]})" for task in learned]
    caption = f"{result.strategy}, seed {result.seed}: score on each task after each task, in %"
    return make_matrix(result.R, learned, caption=caption, corner="after", columns=columns)


_MATRICES = ("R", "ece", "overlap", "routed")


def write_result(result: RunResult, folder: Path) -> None:
    """Write `results.json` into a run's folder, atomically, with hashes of what is beside it."""
    beside = {name: file_sha256(folder / name) for name in BESIDE if (folder / name).is_file()}
    values = {**asdict(result), "files": beside}
    values |= {name: pack_matrix(values[name]) for name in _MATRICES}
    replace_file(folder / RESULTS, dump_json(values, format=RESULTS_FORMAT))


def read_result(folder: Path | str) -> RunResult:
    """Read a run's `results.json`; a `BankError` tells that it is altered."""
    path = Path(folder) / RESULTS
    values = read_values(path)
    with report_missing_parts(path):
        values |= {name: unpack_matrix(values[name]) for name in _MATRICES}
        known = {field.name: values[field.name] for field in fields(RunResult)}
    return RunResult(**known)


def pack_matrix(matrix: Matrix | None) -> Any:
    """Return a matrix as JSON can hold it.

    Of more than 20 rows it is ``{"columns": n, "changes": [[[column, value], …], …]}``, where a row
    lists what differs from the row above it, the first from a row of nulls.
    """
    if matrix is None or len(matrix) <= MOST_WHOLE or len({*map(len, matrix)}) > 1:
        return matrix
    columns = len(matrix[0])
    above = [[None] * columns, *matrix]
    changes = [
        [[at, value] for at, value in enumerate(row) if value != before[at]]
        for before, row in zip(above, matrix, strict=False)
    ]
    return {"columns": columns, "changes": changes}


def unpack_matrix(packed: Any) -> Any:
    """Return the matrix that `pack_matrix` packed; anything else as it is."""
    if not isinstance(packed, dict):
        return packed
    row: list[float | None] = [None] * packed["columns"]
    matrix: list[list[float | None]] = []
    for changed in packed["changes"]:
        row = [*row]
        for at, value in changed:
            row[at] = value
        matrix.append(row)
    return matrix


def machine(device: torch.device) -> dict[str, Any]:
    """Describe the machine."""
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": environment(device)["device_name"] if device.type == "cuda" else device.type,
    }


def find_method_name(strategy: str) -> str:
    """Return the method of a strategy; behind it may stand where or with what it was run."""
    return strategy.split(" ")[0]


def command() -> str:
    """Return the command line of this process, without the program's folder."""
    program = Path(sys.argv[0]).name if sys.argv and sys.argv[0] else "python"
    program = "cl-graft" if program == "__main__.py" else program
    return shlex.join([program, *sys.argv[1:]])
