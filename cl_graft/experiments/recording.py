"""What a run measured, turned into its results, its table and its curves."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.utils.tensorboard.summary import hparams

from cl_graft.experiments.config import ExperimentConfig, dotted
from cl_graft.figures.diagrams import overlap_heatmap, r_matrix_heatmap, reliability_diagram
from cl_graft.grafts.bank import GraftBank
from cl_graft.grafts.region import overlap_matrix
from cl_graft.metrics import (
    average_accuracy,
    backward_transfer,
    forgetting,
    forward_transfer,
    reliability_bins,
)
from cl_graft.results.run_results import RunResult, command
from cl_graft.storage.files import replace_file
from cl_graft.strategies.stream_scores import StreamScores
from cl_graft.strategies.tensorboard import OncePerStepTensorboardLogger
from cl_graft.training.passes import Passes

__all__ = [
    "Record",
    "draw_config",
    "draw_end",
    "draw_row",
    "entry_bytes",
    "result_of",
    "tensor_bytes",
    "write_table",
]

_MEASURES = ("average_accuracy", "backward_transfer", "forgetting")
"""What is drawn along the stream, beside the scores of each task."""


@dataclass
class Record:
    """What is known of a run while it goes on; its fields are those of `RunResult`."""

    strategy: str
    seed: int
    tasks: list[str]
    metrics: dict[str, str]
    schedules: dict[str, dict[str, Any]]
    data_fingerprints: dict[str, str]
    model: dict[str, Any]
    versions: dict[str, str]
    machine: dict[str, Any]
    bytes: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, dict[str, float]] = field(default_factory=dict)
    seconds_saved: dict[str, dict[str, float]] = field(default_factory=dict)
    passes: dict[str, dict[str, Passes]] = field(default_factory=dict)
    memory: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    data: dict[str, dict[str, Any]] = field(default_factory=dict)
    tuning: dict[str, Any] = field(default_factory=dict)
    passes_per_row: float = 1.0
    command: str = field(default_factory=command)
    processes: int = 1

    def measured(self) -> dict[str, Any]:
        """Return what was measured so far, as JSON can hold it."""
        passes = {
            name: {phase: asdict(rows) for phase, rows in phases.items()}
            for name, phases in self.passes.items()
        }
        kept = ("bytes", "seconds", "seconds_saved")
        return {**{name: getattr(self, name) for name in kept}, "passes": passes}

    def go_on(self, measured: Mapping[str, Any]) -> Record:
        """Return the record of a run that goes on after what was measured."""
        passes = {
            name: {phase: Passes(**rows) for phase, rows in phases.items()}
            for name, phases in measured["passes"].items()
        }
        return replace(self, **{**measured, "passes": passes})


def result_of(
    record: Record, scores: StreamScores, bank: GraftBank | None, *, learned: int
) -> RunResult:
    """Sum up a run after `learned` of its tasks."""
    R, names = scores.R(learned), record.tasks[:learned]
    baseline = scores.baseline(learned)
    return RunResult(
        strategy=record.strategy,
        seed=record.seed,
        tasks=record.tasks,
        complete=learned == len(record.tasks),
        R=R,
        ece=scores.ece(learned),
        average_accuracy=average_accuracy(R),
        backward_transfer=backward_transfer(R),
        forward_transfer=forward_transfer(R, baseline=baseline),
        forgetting=forgetting(R),
        metrics=record.metrics,
        baseline=baseline,
        coordinates=_coordinates(bank),
        overlap=overlap_matrix([e.region for e in bank.entries]) if bank else None,
        bytes=record.bytes,
        seconds=record.seconds,
        seconds_saved=record.seconds_saved,
        memory=record.memory,
        data=record.data,
        passes={
            name: {phase: asdict(passes) for phase, passes in phases.items()}
            for name, phases in record.passes.items()
        },
        logit_hashes={
            name: {
                "learned": scores.logit_hash(j, j),
                "end": scores.logit_hash(learned - 1, j),
            }
            for j, name in enumerate(names)
        },
        schedules=record.schedules,
        data_fingerprints=record.data_fingerprints,
        model=record.model,
        versions=record.versions,
        machine=record.machine,
        command=record.command,
        processes=record.processes,
        config=record.config,
        settings=record.settings,
        tuning=record.tuning,
        routed=scores.routed(learned),
        passes_per_row=record.passes_per_row,
        reliability=_reliability(scores, names),
    )


def write_table(result: RunResult, path: Path) -> None:
    """Write one row for every experience and every task that it was tested on, as CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        ["strategy", "seed", "experience", "learned", "task", "metric", "score", "ece", "seconds"]
    )
    for i, (row, errors) in enumerate(zip(result.R, result.ece, strict=True)):
        learned = result.tasks[i]
        seconds = round(sum(result.seconds[learned].values()), 3)
        for j, (value, error) in enumerate(zip(row, errors, strict=True)):
            if value is not None:
                task = result.tasks[j]
                start = [result.strategy, result.seed, i, learned, task, result.metrics[task]]
                writer.writerow([*start, value, error, seconds])
    replace_file(path, text.getvalue().encode())


def draw_config(config: ExperimentConfig, title: str, curves: OncePerStepTensorboardLogger) -> None:
    """Add the settings that decide the bits to the curves, as text."""
    said = {part: own for part, own in config.cell().items() if part != "output"}
    code = json.dumps(said, indent=1).replace("\n", "\n    ")
    curves.writer.add_text("config", f"{title}\n\n    {code}")


def draw_row(result: RunResult, curves: OncePerStepTensorboardLogger) -> None:
    """Add the latest row of R to the curves, at the number of experiences learned."""
    step = len(result.R)
    values: dict[str, float | None] = {name: getattr(result, name) for name in _MEASURES}
    for j, name in enumerate(result.tasks[:step]):
        values[f"R/{name}"] = result.R[-1][j]
        values[f"ece/{name}"] = result.ece[-1][j]
    for tag, value in values.items():
        if value is not None:
            curves.log_single_metric(tag, value, step)


def draw_end(result: RunResult, scores: StreamScores, curves: OncePerStepTensorboardLogger) -> None:
    """Add the pictures of a finished run: R, overlap of regions, calibration of every task.

    Its settings and measures become a row of TensorBoard's page HParams.
    """
    step = len(result.R)
    config = {part: own for part, own in result.config.items() if part != "output"}
    said = {"strategy": result.strategy, "seed": result.seed, **dotted(config), **result.settings}
    settings = {
        name: value if isinstance(value, bool | int | float | str) else json.dumps(value)
        for name, value in said.items()
        if value is not None
    }
    found = {name: getattr(result, name) for name in _MEASURES}
    measures = {name: value for name, value in found.items() if value is not None}
    if (log := curves.writer.file_writer) is not None:
        for part in hparams(settings, measures):
            log.add_summary(part)
    curves.add_figure("R", r_matrix_heatmap(result.R, result.tasks, score_name="score"), step)
    if result.overlap is not None:
        curves.add_figure("overlap", overlap_heatmap(result.overlap, result.tasks), step)
    for j, name in enumerate(result.tasks):
        logits, targets = scores.predictions(j)
        bins = reliability_bins(logits.double().softmax(dim=1), targets)
        curves.add_figure(f"reliability/{name}", reliability_diagram(bins, title=name), step)


def entry_bytes(bank_folder: Path) -> dict[str, int]:
    """Return the size of each entry's files in a bank folder, by task."""
    index = json.loads((bank_folder / "bank.json").read_text(encoding="utf-8"))
    return {
        entry["task"]: entry["bytes"] + entry.get("standalone", {}).get("bytes", 0)
        for entry in index["entries"]
    }


def tensor_bytes(tensors: Sequence[Tensor]) -> int:
    """Return how many bytes tensors take."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _reliability(
    scores: StreamScores, names: Sequence[str]
) -> dict[str, dict[str, list[float | None]]]:
    """Return the bins of confidence of every task with labels, as JSON can hold them."""
    found: dict[str, dict[str, list[float | None]]] = {}
    for j, name in enumerate(names):
        logits, targets = scores.predictions(j)
        if targets.is_floating_point():
            continue
        bins = reliability_bins(logits.double().softmax(dim=1), targets)
        counts = bins.counts.tolist()
        found[name] = {"counts": counts} | {
            kind: [value if n else None for value, n in zip(values.tolist(), counts, strict=True)]
            for kind, values in (("confidence", bins.confidence), ("accuracy", bins.accuracy))
        }
    return found


def _coordinates(bank: GraftBank | None) -> dict[str, dict[str, float]]:
    return {
        entry.task: {
            "claimed": entry.size,
            "owned": len(entry.owned),
            "density": entry.density,
            "lost": entry.share_owned_before,
        }
        for entry in (bank.entries if bank else ())
    }
