"""The measurements of a run: numbers of its tasks, and results, files and curves made of them."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from math import ceil
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from avalanche.logging import BaseLogger
from avalanche.training.templates import SupervisedTemplate
from torch import Tensor, nn

from cl_graft.data.encoded_task import EncodedTask
from cl_graft.grafts.bank import GraftBank
from cl_graft.grafts.region import overlap_matrix
from cl_graft.lab.reporting.summary_files import write_run_summary
from cl_graft.lab.results.measures import has_one_metric, named_measures
from cl_graft.lab.results.run_results import MOST_WHOLE, RunResult, command, write_result
from cl_graft.lab.results.tables import shorten
from cl_graft.lab.results.task_files import (
    ANSWERS,
    CURVES,
    ERRORS,
    MOST_NUMBERS,
    NUMBERS,
    AnsweredNumber,
    NumberScores,
    PhaseCurve,
    ShownAnswer,
    TaskAnswers,
    TaskCurves,
    TaskErrors,
    TaskNumbers,
    WrongRow,
    thin_out,
)
from cl_graft.metrics import (
    average_accuracy,
    backward_transfer,
    forgetting,
    forward_transfer,
    reliability_bins,
)
from cl_graft.metrics.task_score import METRICS, score
from cl_graft.models import TaskModel, graftable_parameters
from cl_graft.storage.bank_folder import count_entry_bytes, read_index
from cl_graft.storage.files import replace_file
from cl_graft.strategies import count_bytes
from cl_graft.strategies.method import Method
from cl_graft.strategies.stream_scores import StreamScores
from cl_graft.strategies.task_heads import copy_head_state, unwrap_model
from cl_graft.strategies.tensorboard import OncePerStepTensorboardLogger
from cl_graft.training.learnable_task import Passes


@dataclass
class RunMeasurements:
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
        return {f.name: getattr(self, f.name) for f in fields(self)} | {"passes": passes}

    def collect(self) -> dict[str, Any]:
        """Return what was measured so far, as JSON can hold it."""
        values = self.values()
        return {name: values[name] for name in ("bytes", "seconds", "seconds_saved", "passes")}

    def resume(self, measured: Mapping[str, Any]) -> RunMeasurements:
        """Return the record of a run that continues after what `collect` returned."""
        passes = {
            name: {phase: Passes(**rows) for phase, rows in phases.items()}
            for name, phases in measured["passes"].items()
        }
        return replace(self, **{**measured, "passes": passes})


def make_result(
    record: RunMeasurements,
    scores: StreamScores,
    bank: GraftBank | None,
    *,
    learned: int,
    other_scores: Mapping[str, Mapping[str, float]],
) -> RunResult:
    """Return the results of a run after `learned` of its tasks."""
    R, names = scores.R(learned), record.tasks[:learned]
    baseline = scores.baseline(learned)
    same_metric = has_one_metric(record.metrics)  # a mean over several has no unit
    return RunResult(
        **record.values(),
        complete=learned == len(record.tasks),
        R=R,
        other_scores={task: dict(scores_of_task) for task, scores_of_task in other_scores.items()},
        ece=scores.ece(learned),
        average_accuracy=average_accuracy(R) if same_metric else None,
        backward_transfer=backward_transfer(R) if same_metric else None,
        forward_transfer=forward_transfer(R, baseline=baseline) if same_metric else None,
        forgetting=forgetting(R) if same_metric else None,
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


_PHASES = {
    "train": "3_train",
    "region": "3_train",
    "dense": "4_dense",
    "localize": "5_localization",
}
"""Group of tags by phase; a region's training is drawn where other strategies draw their loop.

TensorBoard shows groups by name, so that numbers put the scores of the stream first.
"""

_TRAINING = {"Loss": "loss", "DevScore": "dev_score", "LearningRate": "learning_rate"}

_ROWS = 10
"""Wrong rows of a task that are named, and rows whose text answers are shown."""

_Record = TypeVar("_Record", TaskErrors, TaskNumbers)


class TrainingCurves(BaseLogger):
    """Write what a strategy publishes while it trains to a run's curves, under the run's tags.

    What is measured on test rows is left out: `draw_row` writes it once a task.
    """

    def __init__(self, curves: OncePerStepTensorboardLogger, tasks: Sequence[str]) -> None:
        super().__init__()
        self._curves = curves
        self._tasks = tasks

    def log_single_metric(self, name: str, value: Any, x_plot: int) -> None:
        """Write a loss, a dev score or a learning rate, unless its tag has a step as late."""
        match = re.fullmatch(r"(\w+)/(\w+)_phase/train_stream/Task\d+/Exp(\d+)", name)
        if match is None:
            return
        measure, phase, number = match.groups()
        tag = f"{_PHASES[phase]}/{_TRAINING[measure]}/{self._tasks[int(number)]}"
        # A run that goes on within a task reports the steps of the task's earlier phases again.
        if x_plot > (self._curves.last_step(tag) or 0):
            self._curves.log_single_metric(tag, value, x_plot)


def collect_curves(
    curves: OncePerStepTensorboardLogger, tasks: Sequence[str]
) -> dict[str, TaskCurves]:
    """Return what a run's curves hold of learning each task, for its report."""
    scalars = curves.scalars()

    def phase(name: str, task: str) -> PhaseCurve:
        group = _PHASES[name]
        loss, dev = (scalars.get(f"{group}/{kind}/{task}", []) for kind in ("loss", "dev_score"))
        return PhaseCurve(thin_out(loss), tuple((step, round(value, 6)) for step, value in dev))

    made = {task: TaskCurves(phase("train", task), phase("dense", task)) for task in tasks}
    return {task: task_curves for task, task_curves in made.items() if task_curves != TaskCurves()}


def draw_config(record: RunMeasurements, curves: OncePerStepTensorboardLogger) -> None:
    """Add the settings that decide the bits to the curves, as text."""
    settings = {part: values for part, values in record.config.items() if part != "output"}
    code = json.dumps(settings, indent=1).replace("\n", "\n    ")
    title = f"{record.strategy}, seed {record.seed}"
    curves.writer.add_text("config", f"{title}\n\n    {code}")


def draw_row(result: RunResult, curves: OncePerStepTensorboardLogger) -> None:
    """Add the measurements after the latest task to the curves, at the number of tasks learned."""
    step = len(result.R)
    values = {f"1_stream/{name}": value for name, value in named_measures(result).items()}
    for j, name in enumerate(result.tasks[:step]):
        values[f"2_score/{name}"] = result.R[-1][j]
        values[f"6_calibration_error/{name}"] = result.ece[-1][j]
    latest = result.tasks[step - 1]
    values |= {
        f"7_region/{name}": value for name, value in result.coordinates.get(latest, {}).items()
    }
    values["8_cost/bytes"] = result.bytes[latest]
    seconds = result.find_seconds(latest)
    values["8_cost/seconds"] = sum(seconds.values())
    for phase, spent in seconds.items():
        values[f"8_cost/seconds/{phase.replace(' ', '_')}"] = spent
    for tag, value in values.items():
        if value is not None:
            curves.log_single_metric(tag, value, step)


@dataclass(frozen=True)
class Outcome:
    """State of a run after a task: results and measurements so far, and where they go."""

    result: RunResult
    tasks: Sequence[EncodedTask]
    scores: StreamScores
    curves: OncePerStepTensorboardLogger
    folder: Path


def collect_answers(
    tasks: Sequence[EncodedTask], scores: StreamScores, before: Mapping[str, TaskAnswers]
) -> dict[str, TaskAnswers]:
    """Return answers to some test rows of each task learned so far that is answered with text.

    Answers of earlier tasks, as they were when learned, are taken from those that were returned
    after the previous task.
    """
    answers: dict[str, TaskAnswers] = {}
    last = len(scores.order) - 1
    for learned, number in enumerate(scores.order):
        name, compare = tasks[number].task.name, getattr(tasks[number].scorer, "compare", None)
        if compare is None:
            continue
        outputs, targets = scores.predictions(number)
        rows = len(tasks[number].task.test)
        earlier = before[name].shown if learned < last and name in before else ()
        shown: list[ShownAnswer] = []
        for row, (text, said, right) in enumerate(compare(outputs, targets, most=_ROWS)):
            first = earlier[row].learned if row < len(earlier) else None
            then = said if learned == last else first
            shown.append(ShownAnswer(shorten(text), tuple(right), learned=then, now=said))
        same = scores.logit_hash(last, learned) == scores.logit_hash(learned, learned)
        answers[name] = TaskAnswers(rows, same, tuple(shown))
    return answers


def collect_errors(
    tasks: Sequence[EncodedTask], scores: StreamScores, before: Mapping[str, TaskErrors]
) -> dict[str, TaskErrors]:
    """Return right and answered classes of each learned task of classes, tags or several labels.

    Those of intents beside tags stand under the task's name with " (intents)" behind it.
    """

    def describe(number: int) -> dict[str, TaskErrors]:
        task, rows = tasks[number].task, tasks[number].rows["test"]
        errors: dict[str, TaskErrors] = {}
        for part in task.own_kind.confusions(task, *scores.predictions(number), rows):
            end = tuple((*pair, count) for pair, count in sorted(part.counts.items()))
            wrong = tuple(WrongRow(*row) for row in part.wrong)
            name = f"{task.name} ({part.part})" if part.part else task.name
            errors[name] = TaskErrors(part.labels, None, end, wrong, part.counted)
        return errors

    return _collect(scores, describe, before)


def collect_numbers(
    tasks: Sequence[EncodedTask], scores: StreamScores, before: Mapping[str, TaskNumbers]
) -> dict[str, TaskNumbers]:
    """Return right and answered numbers of each regression task that is learned, by task."""

    def describe(number: int) -> dict[str, TaskNumbers]:
        task = tasks[number].task
        if not task.own_kind.one_label or task.label_names:
            return {}
        outputs, right = scores.predictions(number)
        shown = _pick_numbers(tasks[number].rows["test"], right, outputs[:, 0])
        return {task.name: TaskNumbers(len(right), None, _score_numbers(outputs, right), shown)}

    return _collect(scores, describe, before)


def _collect(
    scores: StreamScores,
    describe: Callable[[int], Mapping[str, _Record]],
    before: Mapping[str, _Record],
) -> dict[str, _Record]:
    """Describe the learned tasks; what earlier tasks were when learned is taken from `before`."""
    records: dict[str, _Record] = {}
    for number in scores.order:
        for name, record in describe(number).items():
            earlier = before[name].learned if name in before else None
            learned = record.end if number == scores.order[-1] else earlier
            records[name] = cast(Any, replace)(record, learned=learned)
    return records


def collect_other_scores(
    tasks: Sequence[EncodedTask], scores: StreamScores
) -> dict[str, dict[str, float]]:
    """Return the scores of learned tasks by other metrics than their own, by task and metric."""
    by_task: dict[str, dict[str, float]] = {}
    for number in scores.order:
        task, scorer = tasks[number].task, cast(Any, tasks[number].scorer)
        by_metric: dict[str, float] = {}
        for name in task.own_kind.reported_metrics(task):
            metric = METRICS.find(name)
            if name != task.metric and not metric.of_texts:
                by_metric[name] = scores.score_by(number, name)
            elif name != task.metric and hasattr(scorer, "compare"):
                _, said, right = zip(*scorer.compare(*scores.predictions(number)), strict=True)
                by_metric[name] = float(metric.compute(said, right))
        if by_metric:
            by_task[task.name] = by_metric
    return by_task


def _score_numbers(outputs: Tensor, right: Tensor) -> NumberScores:
    error = (outputs[:, 0].double() - right.double()).abs().mean()
    pearson, spearman = (score(outputs, right, metric) for metric in ("pearson", "spearman"))
    return NumberScores(pearson, spearman, float(error))


def _pick_numbers(rows: Tensor, right: Tensor, answers: Tensor) -> tuple[AnsweredNumber, ...]:
    """Return the numbers of rows at equal distances, and of those with the largest errors."""
    errors = (answers.double() - right.double()).abs()
    worst = errors.argsort(descending=True, stable=True)[:_ROWS].tolist()
    step = max(1, ceil(len(right) / (MOST_NUMBERS - _ROWS)))
    values = list(zip(rows.tolist(), right.tolist(), answers.tolist(), strict=True))
    picked = {*range(0, len(right), step), *worst}
    return tuple(AnsweredNumber(*value) for value in sorted(values[index] for index in picked))


def _write_task_files(run: Outcome) -> None:
    collectors: Any = {ANSWERS: collect_answers, ERRORS: collect_errors, NUMBERS: collect_numbers}
    for file, collect in collectors.items():
        file.write(collect(run.tasks, run.scores, file.read(run.folder)), run.folder)
    if run.result.complete:
        CURVES.write(collect_curves(run.curves, run.result.tasks), run.folder)


WRITERS: tuple[Callable[[Outcome], None], ...] = (
    lambda run: draw_row(run.result, run.curves),
    _write_task_files,
    lambda run: write_table(run.result, run.folder / "metrics.csv"),
    lambda run: write_run_summary(run.result, run.folder),
    lambda run: write_result(run.result, run.folder),
)
"""Writers in their order; the last one says that a complete run is finished."""
