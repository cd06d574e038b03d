"""The record of a run: what it measures, and the results and the table that are made from it."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, cast

import torch
from avalanche.training.templates import SupervisedTemplate
from torch import nn

from cl_graft.grafts.bank import GraftBank
from cl_graft.grafts.region import overlap_matrix
from cl_graft.lab.results.measures import has_one_metric
from cl_graft.lab.results.run_results import MOST_WHOLE, RunResult, command
from cl_graft.metrics import (
    average_accuracy,
    backward_transfer,
    forgetting,
    forward_transfer,
    reliability_bins,
)
from cl_graft.models import TaskModel, graftable_parameters
from cl_graft.storage.bank_index import count_entry_bytes, read_index
from cl_graft.storage.files import replace_file
from cl_graft.strategies import count_bytes
from cl_graft.strategies.heads import copy_head_state, unwrap_model
from cl_graft.strategies.method import Method
from cl_graft.strategies.stream_scores import StreamScores
from cl_graft.training.passes import Passes


@dataclass
class RunRecord:
    """Measurements of a run in progress; fields as in `RunResult`."""

    strategy: str
    seed: int
    tasks: list[str]
    metrics: dict[str, str]
    data_fingerprints: dict[str, str]
    model: dict[str, Any]
    versions: dict[str, str]
    machine: dict[str, Any]
    schedules: dict[str, dict[str, Any]] = field(default_factory=dict)
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

    def values(self) -> dict[str, Any]:
        """Return all fields by name, as JSON can hold them."""
        passes = {
            name: {phase: asdict(rows) for phase, rows in phases.items()}
            for name, phases in self.passes.items()
        }
        return {own.name: getattr(self, own.name) for own in fields(self)} | {"passes": passes}

    def collect(self) -> dict[str, Any]:
        """Return what was measured so far, as JSON can hold it."""
        values = self.values()
        return {name: values[name] for name in ("bytes", "seconds", "seconds_saved", "passes")}

    def resume(self, measured: Mapping[str, Any]) -> RunRecord:
        """Return the record of a run that continues after what `collect` returned."""
        passes = {
            name: {phase: Passes(**rows) for phase, rows in phases.items()}
            for name, phases in measured["passes"].items()
        }
        return replace(self, **{**measured, "passes": passes})


def make_result(
    record: RunRecord,
    scores: StreamScores,
    bank: GraftBank | None,
    *,
    learned: int,
    other_scores: Mapping[str, Mapping[str, float]],
) -> RunResult:
    """Return the results of a run after `learned` of its tasks."""
    R, names = scores.R(learned), record.tasks[:learned]
    baseline = scores.baseline(learned)
    one = has_one_metric(record.metrics)  # a mean over several has no unit
    return RunResult(
        **record.values(),
        complete=learned == len(record.tasks),
        R=R,
        other_scores={task: dict(own) for task, own in other_scores.items()},
        ece=scores.ece(learned),
        average_accuracy=average_accuracy(R) if one else None,
        backward_transfer=backward_transfer(R) if one else None,
        forward_transfer=forward_transfer(R, baseline=baseline) if one else None,
        forgetting=forgetting(R) if one else None,
        baseline=baseline,
        coordinates=_coordinates(bank),
        overlap=overlap_matrix([e.region for e in bank.entries])
        if bank and len(bank) <= MOST_WHOLE
        else None,
        logit_hashes={
            name: {"learned": scores.logit_hash(j, j), "end": scores.logit_hash(learned - 1, j)}
            for j, name in enumerate(names)
        },
        routed=scores.share_routed(learned),
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
        seconds = round(sum(result.find_seconds(learned).values()), 3)
        for j, (value, error) in enumerate(zip(row, errors, strict=True)):
            if value is not None:
                task = result.tasks[j]
                start = [result.strategy, result.seed, i, learned, task, result.metrics[task]]
                writer.writerow([*start, value, error, seconds])
    replace_file(path, text.getvalue().encode())


class PassCounter:
    """Counts the rows that go through a model, and through copies made of it, whoever sends them.

    Rows count as differentiated where gradients are recorded. Of an encoder, passes without a head
    count too.
    """

    def __init__(self, model: TaskModel) -> None:
        rows = {True: 0, False: 0}

        # A plain function: deep copies of the model share it. The owner of a method would be
        # copied with the model.
        def count(module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
            rows[torch.is_grad_enabled()] += len(inputs[0] if inputs else named["input_ids"])

        watched = model.backbone if model.family == "encoder" else model
        watched.register_forward_pre_hook(count, with_kwargs=True)
        self._rows = rows

    def take(self) -> Passes:
        """Return what was counted since the last time."""
        taken = Passes(self._rows[True], self._rows[False])
        self._rows[True] = self._rows[False] = 0
        return taken


def count_task_bytes(
    method: Method, strategy: SupervisedTemplate, label: int, *, task: str, bank: Path
) -> int:
    """Count the bytes that a learned task adds to what is stored, beside the strategy's own."""
    if method.stored_as == "entry":
        records = reversed(read_index(bank)[0])
        return count_entry_bytes(next(record for record in records if record["task"] == task))
    model = unwrap_model(strategy.model)
    heads = cast(TaskModel, model).heads
    known = any(heads[str(label)] is heads[str(earlier)] for earlier in range(label))
    tensors = [] if known else list(copy_head_state(model, label).values())
    if method.stored_as == "model":
        tensors += [p.detach() for p in graftable_parameters(model).values()]
    return count_bytes(tensors)


def _reliability(
    scores: StreamScores, names: Sequence[str]
) -> dict[str, dict[str, list[float | None]]]:
    """Return the bins of confidence of tasks whose rows have classes, as JSON can hold them."""
    reliability: dict[str, dict[str, list[float | None]]] = {}
    for j, name in enumerate(names):
        logits, targets = scores.predictions(j)
        if targets.ndim != 1 or targets.is_floating_point():
            continue
        bins = reliability_bins(logits.double().softmax(dim=1), targets)
        counts = bins.counts.tolist()
        reliability[name] = {"counts": counts} | {
            kind: [value if n else None for value, n in zip(values.tolist(), counts, strict=True)]
            for kind, values in (("confidence", bins.confidence), ("accuracy", bins.accuracy))
        }
    return reliability


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
