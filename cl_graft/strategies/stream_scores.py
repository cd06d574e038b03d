"""The measures of a stream as a metric plugin of Avalanche, `StreamScores`."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

import torch
from avalanche.evaluation import PluginMetric
from avalanche.evaluation.metric_results import MetricValue
from avalanche.models import MultiTaskModule
from torch import Tensor, nn

from cl_graft.errors import InputError
from cl_graft.grafts.hashing import hash_tensors
from cl_graft.metrics.by_metric import group_by_metric, name_metric
from cl_graft.metrics.calibration import ece
from cl_graft.metrics.continual import ScoreMatrix, average_accuracy, backward_transfer, forgetting
from cl_graft.metrics.task_score import Scorer, score
from cl_graft.models.heads import ABSENT
from cl_graft.storage.files import replace_file
from cl_graft.strategies.experience_tasks import find_benchmark
from cl_graft.strategies.strategy import Strategy
from cl_graft.strategies.strategy_checks import check_instance

logger = logging.getLogger(__name__)

_BASE = -1
"""Row of the scores before any training."""

_KINDS = ("scores", "ece", "hashes", "routed")
"""Kinds of values that are kept for each cell of R."""


class StreamScores(PluginMetric[ScoreMatrix]):
    """Score every experience of a test stream whenever the stream is evaluated.

    Goes into Avalanche's `EvaluationPlugin`. Emits ``Score`` and ``ECE`` of every evaluated
    experience, and ``AverageAccuracy``, ``BackwardTransfer`` and ``Forgetting`` once a row of R is
    complete. The average has the name of the metric, such as ``AverageF1``; where experiences have
    several metrics, so have the others, and each is over those of its metric. What is measured
    while an experience trains (``eval_every``) is emitted, but is no part of R.

    Rows and columns of R are in the order of training. The test and the training experience with
    the same number belong together, as in Avalanche; their task labels must be equal. An experience
    of a further benchmark gets the next number that is free. There is no R if an experience was
    trained twice. Where each task label has a head, an experience is scored among the classes that
    the stream has under its label.

    A strategy that picks the task of each row says so with its attribute ``answered_by``: the task
    labels that answered the batch, (n,).

    Runs at: before_training, before_training_exp, after_training_exp, before_eval_exp,
    after_eval_iteration, after_eval_exp, after_eval.

    Args:
        metrics: The score of a task, by task label: a name that `cl_graft.metrics.score` knows, by
            default ``"accuracy"``. Experiences with a `scorer`, as `text_stream` gives them where
            texts are compared, are scored by it.
        stream: Name of the stream to measure; others are ignored.
        zero_shot: Whether to keep R[i][j] for j > i, too. Only for models that can answer a task
            before they learned it (prompts): an untrained head answers by chance.

    Attributes:
        order: Numbers of the experiences trained so far, one a training.
    """

    def __init__(
        self,
        metrics: Mapping[int, str] | None = None,
        *,
        stream: str = "test",
        zero_shot: bool = False,
    ) -> None:
        super().__init__()
        self.stream = stream
        self.zero_shot = zero_shot
        self._metrics = dict(metrics or {})
        self.reset()

    def reset(self) -> None:
        """Forget everything measured so far."""
        self.order: list[int] = []
        self._numbers = _Numbers()
        self._labels: dict[int, int] = {}
        self._training = False
        self._batches: list[tuple[Tensor, Tensor, Tensor | None]] = []
        self._cells: dict[str, StreamMatrix[Any]] = {name: StreamMatrix() for name in _KINDS}
        self._latest: dict[int, tuple[Tensor, Tensor, int]] = {}

    def result(self) -> ScoreMatrix:
        """Return R over the experiences trained so far."""
        return self.R(len(self.order))

    def state(self) -> dict[str, Any]:
        """Return what was measured as JSON can hold it, without predictions and most hashes."""
        rows = {name: [[i, row] for i, row in cells.rows()] for name, cells in self._cells.items()}
        for entry in rows["hashes"]:
            i, row = entry
            if i != self._row:  # of earlier ones the cell of the task that was trained last
                trained = self.order[i] if i >= 0 else None
                entry[1] = [cell if j == trained else None for j, cell in enumerate(row)]
        return {
            "order": list(self.order),
            "labels": [[j, label] for j, label in self._labels.items()],
            **rows,
        }

    def load_state_(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` returned; predictions come with the next evaluation."""
        self.reset()
        self.order = list(state["order"])
        self._labels = dict(state["labels"])
        self._numbers = _Numbers({*self.order, *self._labels})
        for name, cells in self._cells.items():
            cells.load_(state[name])

    def save(self, path: str | Path) -> None:
        """Write what was measured so far into a JSON file, so that a program can go on later."""
        replace_file(Path(path), json.dumps(self.state()).encode())

    def load_(self, path: str | Path) -> None:
        """Take over what `save` wrote, before the stream goes on.

        Rows and columns of R then go on, too. In a program that starts again without it, R begins
        with the first experience that this program trains.

        Raises:
            InputError: If the file holds something else.
        """
        try:
            self.load_state_(json.loads(Path(path).read_bytes()))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            self.reset()
            raise InputError(f"{path} is no file that StreamScores.save wrote: {error}") from error

    # What was measured.

    def R(self, size: int) -> list[list[float | None]]:  # noqa: N802
        """Return R as `size` rows of `size` cells; None where nothing was measured.

        Rows and columns are in the order of training, see `order`.

        Raises:
            ValueError: If an experience was trained twice, so that R has no one row for it.
        """
        return self._matrix("scores", size)

    def ece(self, size: int) -> list[list[float | None]]:
        """Return the calibration errors, cells as in `R`; None for regression, too."""
        return self._matrix("ece", size)

    def share_routed(self, size: int) -> list[list[float | None]] | None:
        """Return the shares of rows that their own task answered; None if labels were given."""
        cells = self._matrix("routed", size)
        return cells if any(cell is not None for row in cells for cell in row) else None

    def baseline(self, size: int) -> list[float | None]:
        """Return the scores before any training, in the order of training; None where unknown."""
        return [self._cells["scores"].get(_BASE, j) for j in self._columns(size)]

    def logit_hash(self, i: int, j: int) -> str:
        """Return the SHA-256 over the logits in a cell of `R`; row -1 is before any training.

        Raises:
            KeyError: If that was not measured.
        """
        digest = self._cells["hashes"].get(i, self._columns(j + 1)[j])
        if digest is None:
            raise KeyError(f"experience {j} was not evaluated after training on experience {i}")
        return digest

    def predictions(self, j: int) -> tuple[Tensor, Tensor]:
        """Return the latest logits, (n, own classes), and targets, (n,), of experience j.

        Here j is the experience's number in `order`. Targets are places among the classes of its
        task label. Where a strategy picks tasks, columns of other tasks' classes follow.

        Raises:
            KeyError: If experience j was not evaluated.
        """
        return self._find(j)[:2]

    def score_by(self, j: int, metric: str | Scorer) -> float:
        """Return the score of the latest predictions of experience j by any metric.

        Raises:
            KeyError: As `predictions`.
            ValueError: As `cl_graft.metrics.score`.
        """
        logits, targets, classes = self._find(j)
        return score(logits.float(), targets, metric, classes=classes)

    # The hooks, in the order in which a strategy calls them.

    def before_training(self, strategy: Any = None) -> None:
        """Drop the state of a training that an exception interrupted."""
        check_instance(self, StreamScores)
        self._training = False

    def before_training_exp(self, strategy: Strategy) -> None:
        """Stop filling R while an experience trains."""
        self._training = True

    def after_training_exp(self, strategy: Strategy) -> None:
        """Go on to the next row."""
        self._training = False
        number = self._numbers.add(strategy.experience)
        if number in self.order:
            logger.warning(
                "experience %d was trained before: no R, transfer or forgetting of this stream is "
                "given, as they have one row and one column an experience",
                number,
            )
        self.order.append(number)
        self._labels[number] = _label(strategy.experience)

    def before_eval_exp(self, strategy: Strategy) -> None:
        """Start with no batches."""
        self._batches = []

    def after_eval_iteration(self, strategy: Strategy) -> None:
        """Keep the logits of a batch."""
        if self._measured(strategy):
            logits, targets = strategy.mb_output.detach(), strategy.mb_y
            answered_by = getattr(strategy, "answered_by", None)
            here = None if answered_by is None else answered_by == _label(strategy.experience)
            self._batches.append(
                (logits.cpu(), targets.cpu(), None if here is None else here.cpu())
            )

    def after_eval_exp(self, strategy: Strategy) -> list[MetricValue]:
        """Score the experience."""
        if not self._measured(strategy) or not self._batches:
            return []
        experience = strategy.experience
        j = self._numbers.find(experience)
        label = _label(experience)
        if self._labels.get(j, label) != label:
            raise ValueError(
                f"experience {j} of the {self.stream} stream has task label {label}, the training "
                f"experience with this number had {self._labels[j]}: scores of experiences are "
                "matched by their number, so both streams must come from one benchmark"
            )
        logits = torch.cat([batch[0] for batch in self._batches])
        targets = torch.cat([batch[1] for batch in self._batches])
        parts = [batch[2] for batch in self._batches if batch[2] is not None]
        here = torch.cat(parts) if parts else None
        self._batches = []
        if logits.ndim == 1:  # one number a row
            logits = logits[:, None]
        everything = logits
        # Where tasks share a head, a choice of columns would give the task away.
        one_head = getattr(strategy.model, "one_head", False)
        if isinstance(strategy.model, MultiTaskModule) and not one_head:
            logits, targets = _pick_columns(logits, targets, experience)
        classes = logits.shape[-1]
        if here is not None:
            logits = _beside(logits, everything, here)
        self._latest[j] = logits, targets, classes
        name = f"eval_phase/{self.stream}_stream/Task{label:03d}/Exp{j:03d}"
        step = strategy.clock.train_iterations
        metric = getattr(experience, "scorer", None) or self._metrics.get(label, "accuracy")
        if metric == "accuracy" and (targets.ndim > 1 or targets.is_floating_point()):
            raise InputError(
                f"the targets of experience {j}, {tuple(targets.shape)} of {targets.dtype}, are no "
                "class ids, so they have no accuracy; name the score by task label, as in "
                f"StreamScores({{{label}: 'pearson'}})"
            )
        value = self.score_by(j, metric)
        measured = {"scores": value}
        if here is not None:
            measured["routed"] = float(here.double().mean())
        values = [MetricValue(self, f"Score/{name}", value, step)]
        if targets.ndim == 1 and not targets.is_floating_point():
            probabilities = logits.double().softmax(dim=1)
            measured["ece"] = ece(probabilities, targets)
            values.append(MetricValue(self, f"ECE/{name}", measured["ece"], step))
        self._keep(j, measured, logits)
        return values

    def after_eval(self, strategy: Strategy) -> list[MetricValue]:
        """Summarise the row of R, if it is complete."""
        if self._training or self._find_repeated() is not None:
            return []
        if any((self._row, j) not in self._cells["scores"] for j in self.order):
            return []
        summary = self._summary()
        where = f"eval_phase/{self.stream}_stream"
        step = strategy.clock.train_iterations
        return [
            MetricValue(self, f"{name}/{where}", value, step)
            for name, value in summary.items()
            if value is not None
        ]

    def __str__(self) -> str:
        return "StreamScores"

    def _find(self, j: int) -> tuple[Tensor, Tensor, int]:
        """Return latest logits and targets of experience j, and how many classes are its own."""
        if j not in self._latest:
            raise KeyError(f"experience {j} of the {self.stream} stream was not evaluated")
        return self._latest[j]

    def _summary(self) -> dict[str, float | None]:
        """Return the measures of R: one of each metric, never a mean over several."""
        R = self.result()
        metrics = [self._metrics.get(self._labels.get(j, j), "accuracy") for j in self.order]
        several = len({name_metric(name) for name in (*metrics, *self._metrics.values())}) > 1
        measures: dict[str, float | None] = {}
        for metric, places in group_by_metric(metrics).items():
            name = "".join(part.capitalize() for part in metric.split("_"))
            suffix = name if several else ""
            measures[f"Average{name}"] = average_accuracy(R, tasks=places)
            measures[f"BackwardTransfer{suffix}"] = backward_transfer(R, tasks=places)
            measures[f"Forgetting{suffix}"] = forgetting(R, tasks=places)
        return measures

    @property
    def _row(self) -> int:
        """Row of what is measured now."""
        return len(self.order) - 1

    def _find_repeated(self) -> int | None:
        """Return an experience that was trained twice; None if there is none."""
        return next((j for j, times in Counter(self.order).items() if times > 1), None)

    def _columns(self, size: int) -> list[int]:
        """Return the experiences of columns: those trained, in order, then those that were not."""
        trained = list(dict.fromkeys(self.order))
        left = (j for j in range(size + len(trained)) if j not in trained)
        return [*trained, *left][:size]

    def _matrix(self, kind: str, size: int) -> list[list[float | None]]:
        repeated = self._find_repeated()
        if repeated is not None:
            raise ValueError(
                f"experience {repeated} was trained more than once (in the order {self.order}), "
                "so there is no R with one row and one column an experience; measure each pass "
                "through the stream with StreamScores of its own, or after reset()"
            )
        return self._cells[kind].matrix(self._columns(size))

    def _measured(self, strategy: Strategy) -> bool:
        return strategy.experience.origin_stream.name == self.stream

    def _keep(self, j: int, measured: Mapping[str, float], logits: Tensor) -> None:
        untrained = j not in self.order and not self.zero_shot and self._row != _BASE
        if self._training or untrained:
            return
        for kind, value in {**measured, "hashes": hash_tensors({"logits": logits})}.items():
            self._cells[kind].set(self._row, j, value)


def _label(experience: Any) -> int:
    labels = getattr(experience, "task_labels", None) or (0,)
    return int(labels[0])


def _pick_columns(logits: Tensor, targets: Tensor, experience: Any) -> tuple[Tensor, Tensor]:
    """Keep the columns of the classes of a task label, and renumber the targets to match."""
    if targets.ndim > 1:
        return logits[..., : getattr(experience, "own_columns", None)], targets
    if targets.is_floating_point():
        return logits[:, :1], targets
    classes = _find_classes(experience)
    if not classes:
        return logits, targets
    columns = torch.tensor(classes)
    missing = classes[-1] + 1 - logits.shape[1]  # columns that no head has yet
    logits = nn.functional.pad(logits, (0, max(0, missing)), value=ABSENT)
    return logits[:, columns].contiguous(), torch.searchsorted(columns, targets)


def _find_classes(experience: Any) -> list[int]:
    """Return the classes of all experiences in its stream that have an experience's task label."""
    stream, label = experience.origin_stream, _label(experience)
    same = [each for each in stream if _label(each) == label] if hasattr(stream, "__len__") else ()
    return sorted(
        {
            int(number)
            for each in (experience, *same)
            for number in getattr(each, "classes_in_this_experience", None) or ()
        }
    )


class _Numbers:
    """Numbers of experiences in their stream, or the next free one beside another benchmark.

    A benchmark that nothing was trained on is taken for the only one that was, as test streams are
    copied; beside several it is another one.
    """

    def __init__(self, restored: Iterable[int] = ()) -> None:
        self._restored = {number: number for number in restored}
        self._taken = set(self._restored)
        self._by_benchmark: WeakKeyDictionary[Any, dict[int, int]] = WeakKeyDictionary()
        self._several = False

    def add(self, experience: Any) -> int:
        """Return the number of an experience that is trained."""
        benchmark, number = find_benchmark(experience), int(experience.current_experience)
        if benchmark not in self._by_benchmark:
            self._several = bool(self._taken - self._restored.keys())
            self._by_benchmark[benchmark], self._restored = self._restored, {}
        known = self._by_benchmark[benchmark]
        if number not in known:
            known[number] = max(self._taken) + 1 if number in self._taken else number
            self._taken.add(known[number])
        return known[number]

    def find(self, experience: Any) -> int:
        """Return the number of an experience that is evaluated."""
        if self._several or find_benchmark(experience) in self._by_benchmark:
            return self.add(experience)
        return int(experience.current_experience)

    def __getstate__(self) -> dict[str, Any]:
        return {"restored": self._taken}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["restored"])


def _beside(columns: Tensor, others: Tensor, here: Tensor) -> Tensor:
    """Join a task's own columns and all columns; each row has its logits in one of the two."""
    answered = here[:, None]
    columns = columns.masked_fill(~answered, ABSENT)
    return torch.cat([columns, others.masked_fill(answered, ABSENT)], dim=1)


T = TypeVar("T")


class StreamMatrix(Generic[T]):
    """Values measured on experience j after the i-th training; i = -1 is before any.

    A value that equals the one above it is kept once: without forgetting, a column has one value.
    """

    def __init__(self) -> None:
        self._rows: dict[int, list[T | None]] = {}

    def __contains__(self, cell: tuple[int, int]) -> bool:
        return self.get(*cell) is not None

    def get(self, i: int, j: int) -> T | None:
        """Return the value of a cell; None if it has none."""
        row = self._rows.get(i, ())
        return row[j] if j < len(row) else None

    def set(self, i: int, j: int, value: T) -> None:
        """Set the value of a cell."""
        above = self.get(i - 1, j)
        row = self._rows.setdefault(i, [])
        row += [None] * (j + 1 - len(row))
        row[j] = above if above == value else value

    def matrix(self, columns: Sequence[int]) -> list[list[T | None]]:
        """Return the cells of as many rows as there are columns; None where there is no value."""
        return [[self.get(i, j) for j in columns] for i in range(len(columns))]

    def rows(self) -> Iterator[tuple[int, list[T | None]]]:
        """Yield i and a copy of its row, for `load_`."""
        return ((i, list(row)) for i, row in self._rows.items())

    def load_(self, rows: Sequence[tuple[int, Sequence[T | None]]]) -> None:
        """Take over what `rows` yielded."""
        self._rows.clear()
        for i, row in rows:
            for j, value in enumerate(row):
                if value is not None:
                    self.set(i, j, value)
