"""Text tasks: names, rows of three splits, and class ids of tasks that share a head."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NoReturn
from unicodedata import category, normalize

from torch import nn

from cl_graft.errors import InputError, a_or_an
from cl_graft.kinds.kind import KINDS, Kind
from cl_graft.kinds.prompts import Prompt
from cl_graft.kinds.rows import Row, limit_rows
from cl_graft.kinds.text2text import Decoding
from cl_graft.metrics.task_score import METRICS
from cl_graft.models import TaskModel

MAX_LENGTH = 128
"""Tokens a row where neither a task nor a setting says otherwise."""

_LONGEST_NAME = 100


@dataclass(frozen=True)
class TextTask:
    """A task ready to be encoded.

    Attributes:
        name: Name of the task, safe as a file name.
        label_names: Names of the labels; `label_names[i]` is that of class id i, or of tag i. Empty
            for a regression and for extractive QA.
        train: Training rows. Every row of the task has a second text, or none has.
        dev: Rows for choosing.
        test: Rows for scores.
        metric: Name of a registered metric, see `cl_graft.metrics.register_metric`.
        positive: Label of which the metric ``"f1"`` of two classes is the F1; None means the
            second.
        prompt: Prompt of a masked language model; None if the task has none.
        causal_prompt: Prompt of a causal language model; None if the task has none.
        max_length: Tokens a row, special ones included.
        source: Provenance of the rows: paths, split rule, counts.
        kind: Name of a registered kind of tasks; empty means ``"classification"``, or without
            label names ``"regression"``.
        intent_names: Names of the intents of a tagging task, one of which each row has; empty where
            rows have none.
        decoding: How answers of text to text are decoded.

    Raises:
        InputError: If the name is not safe as a file name, or rows, labels, metric and label names
            do not fit together.

    Examples:
        >>> rows = (Row("Fine food", None, 1), Row("Cold soup", None, 0))
        >>> task = TextTask("opinion", ("bad", "good"), train=rows, dev=rows, test=rows)
        >>> task
        TextTask('opinion', 2 classes, rows: 2 train, 2 dev, 2 test)
        >>> task.label_names[task.train[0].label]
        'good'
    """

    name: str
    label_names: tuple[str, ...]
    train: tuple[Row, ...]
    dev: tuple[Row, ...]
    test: tuple[Row, ...]
    metric: str = "accuracy"
    positive: str | None = None
    prompt: Prompt | None = None
    causal_prompt: Prompt | None = None
    max_length: int = MAX_LENGTH
    source: Mapping[str, object] = field(default_factory=dict, hash=False)
    kind: str = ""
    intent_names: tuple[str, ...] = ()
    decoding: Decoding = field(default_factory=Decoding)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", check_task_name(self.name))
        if not self.kind:
            plain = "classification" if self.label_names else "regression"
            object.__setattr__(self, "kind", plain)
        _check_header(self)
        _check_rows(self)
        self.own_kind.check(self)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{len(rows):,} {split}" for split, rows in self.splits.items())
        return f"TextTask({self.name!r}, {self.own_kind.describe(self)}, rows: {sizes})"

    @property
    def origin_stream(self) -> NoReturn:
        """Refuse to be an experience of Avalanche, whose strategies ask it for its stream."""
        raise AttributeError(
            f"the task {self.name!r} is no experience: put tasks into a stream, as in stream = "
            "text_stream([task], tokenizer, family=...), and train on the experiences of "
            "stream.benchmark.train_stream"
        )

    @property
    def splits(self) -> dict[str, tuple[Row, ...]]:
        """The rows by split: ``"train"``, ``"dev"`` and ``"test"``."""
        return {"train": self.train, "dev": self.dev, "test": self.test}

    def placed_rows(self) -> Iterator[tuple[str, Row]]:
        """Yield all rows with their places for messages: file and line if known, else a number."""
        for split, rows in self.splits.items():
            for number, row in enumerate(rows, start=1):
                origin = getattr(row, "origin", "") or f"{split} row {number}"
                yield f"task {self.name!r}: {origin}", row

    @property
    def own_kind(self) -> Kind:
        """The kind of the task."""
        return KINDS.find(self.kind)

    @property
    def num_outputs(self) -> int:
        """Number of logits of a row, or of each token: classes; 1 for a regression."""
        return self.own_kind.count_outputs(self)

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes of rows, of which each needs training rows; empty without."""
        return self.label_names if self.own_kind.needs_classes else ()

    @property
    def pair(self) -> bool:
        """Whether each row has two texts."""
        return self.train[0].text_pair is not None

    @property
    def scored_by(self) -> str:
        """The name of the task's score for `cl_graft.metrics.score`, which knows class ids only."""
        first = self.positive is not None and self.positive == self.label_names[0]
        return "f1_of_class_0" if self.metric == "f1" and first else self.metric

    @cached_property
    def fingerprint(self) -> str:
        """Sha256 (hex) over the task's name, its label names and all rows of the three splits."""
        header = [self.name, self.label_names, *([self.intent_names] if self.intent_names else [])]
        digest = hashlib.sha256(json.dumps(header).encode())
        for split, rows in self.splits.items():
            digest.update(f"\n{split}\n".encode())
            for row in rows:
                digest.update(json.dumps(row.content).encode() + b"\n")
        return digest.hexdigest()

    def with_limits(
        self,
        *,
        seed: int,
        max_train: int | None = None,
        max_dev: int | None = None,
        max_test: int | None = None,
    ) -> TextTask:
        """Keep at most `max_train` training, `max_dev` dev and `max_test` test rows, by `seed`.

        The rows kept are those of a seeded permutation's beginning, left in their order; a smaller
        limit keeps a subset of what a larger one keeps. Of dev, the first row of each class comes
        before all others, so that every class stays if `max_dev` has room for it. Recorded in
        `source["limits"]`.

        Raises:
            InputError: If a limit is below 1, or leaves a class without a training row.
        """
        train = limit_rows(self.train, max_train, seed, "max_train")
        dev = limit_rows(self.dev, max_dev, seed, "max_dev", every_class=bool(self.class_names))
        test = limit_rows(self.test, max_test, seed, "max_test")
        if (train, dev, test) == (self.train, self.dev, self.test):
            return self
        present = {row.label for row in train}
        for label, label_name in enumerate(self.class_names):
            if label not in present:
                raise InputError(
                    f"max_train={max_train} leaves task {self.name!r} no training row of class "
                    f"{label_name!r}; raise it, or ask for shots, which count rows of each class"
                )
        limits = {
            "seed": seed,
            "train": [len(train), len(self.train)],
            "dev": [len(dev), len(self.dev)],
            "test": [len(test), len(self.test)],
        }
        source = {**self.source, "limits": limits}
        return replace(self, train=train, dev=dev, test=test, source=source)


def check_task_name(name: str) -> str:
    r"""Return a task's name in Unicode's composed form (NFC), if it is one.

    Letters and digits of any script make a name. The composed form is that of every keyboard;
    some systems store file names in another one.

    Raises:
        InputError: If it holds anything but letters, digits, '.', '_' and '-', begins with a dot or
            a combining mark, or is longer than 100 characters.

    Examples:
        >>> check_task_name("topic-2"), check_task_name("cafe\u0301")
        ('topic-2', 'café')
    """
    composed = normalize("NFC", name)
    fits = map(_fits, ("", *composed), composed)
    if not 0 < len(composed) <= _LONGEST_NAME or not all(fits):
        raise InputError(
            f"task name {name[:120]!r} cannot name a file: use up to {_LONGEST_NAME} letters and "
            "digits of any script, '.', '_' or '-' (no leading dot)"
        )
    return composed


def _fits(before: str, character: str) -> bool:
    """Tell whether a name may hold a character behind another one, which is empty at its start."""
    if character == "." or category(character)[0] == "M":
        return bool(before)
    return character in "_-" or category(character)[0] in "LN"


def make_task_head(
    model: TaskModel,
    task: TextTask,
    *,
    label_tokens: Sequence[Sequence[int]] | None = None,
    seed: int,
) -> nn.Module:
    """Make the head that answers a task: its kind's on an encoder, else that of its prompt."""
    if model.family == "encoder":
        return task.own_kind.make_head(model, task, seed=seed)
    return task.own_kind.make_prompted_head(model, task, label_tokens)


@contextmanager
def name_task(task: str, split: str = "") -> Iterator[None]:
    """Put the name of a task, and a split's, before errors that do not begin with it."""
    prefix = f"task {task!r}"
    try:
        yield
    except InputError as error:
        if str(error).startswith(prefix):
            raise
        raise InputError(f"{prefix}: {split}{error}") from None


def _check_header(task: TextTask) -> None:
    with name_task(task.name):
        metric, kind = METRICS.find(task.metric), KINDS.find(task.kind)
    if task.kind not in metric.kinds:
        fitting = ", ".join(name for name, known in METRICS.items() if task.kind in known.kinds)
        raise InputError(
            f"task {task.name!r} is {a_or_an(task.own_kind.title)} task: metric "
            f"{task.metric!r} does not fit it; fitting are {fitting}"
        )
    if task.positive is not None and "f1" not in kind.metrics:
        raise InputError(
            f"task {task.name!r}: positive {task.positive!r} is for the metric 'f1' of two labels; "
            f"the metric is {task.metric!r}"
        )
    if task.max_length < 8:
        raise InputError(
            f"task {task.name!r}: max_length must be at least 8 tokens, got {task.max_length}"
        )


def _check_rows(task: TextTask) -> None:
    for split, rows in task.splits.items():
        if not rows:
            raise InputError(f"task {task.name!r} has no {split} rows")
    for origin, row in task.placed_rows():
        if (row.text_pair is not None) != task.pair:
            raise InputError(
                f"{origin} has {'one text' if task.pair else 'two texts'}, the first training row "
                f"has {'two' if task.pair else 'one'}"
            )


def share_labels(tasks: Sequence[TextTask]) -> tuple[TextTask, ...]:
    """Number the labels of all tasks in the order of the first task's (domain-incremental).

    Raises:
        InputError: If one has other labels.
    """
    first, names = tasks[0], tasks[0].label_names
    shared: list[TextTask] = []
    for task in tasks:
        if set(task.label_names) != set(names):
            raise InputError(
                "domain-incremental tasks share their labels, but those of "
                f"{first.name!r} are {', '.join(first.label_names)}, and those of {task.name!r} "
                f"{', '.join(task.label_names)}; "
                "label_names of load_task, or in a config "
                f"stream.task_settings.{task.name}.label_names can name them alike"
            )
        numbers = [names.index(name) for name in task.label_names]
        renumbered = {
            split: tuple(Row(row.text, row.text_pair, numbers[int(row.label)]) for row in rows)
            for split, rows in task.splits.items()
        }
        same = task.label_names == names
        shared.append(task if same else replace(task, label_names=names, **renumbered))
    return tuple(shared)


def number_classes(tasks: Sequence[TextTask], *, size: int | None = None) -> tuple[TextTask, ...]:
    """Number the classes of all tasks consecutively, for one head (class-incremental).

    Every task has the labels of all tasks, and the rows of its own classes. Scores are accuracies,
    as a task's own metric does not know the classes of other tasks.

    Args:
        tasks: Classification tasks.
        size: Classes an experience; a task of more is split into several. None splits none.

    Raises:
        InputError: If a split has no rows of an experience's classes.

    Examples:
        >>> from cl_graft.data import load_task
        >>> tasks = [load_task(name, shots=4, max_test=20) for name in ("scope", "answered")]
        >>> number_classes(tasks)[1].label_names
        ('scope in_scope', 'scope out_of_scope', 'answered answered', 'answered not_answered')
    """
    names = tuple(
        f"{task.name} {label}" if len(tasks) > 1 else label
        for task in tasks
        for label in task.label_names
    )
    experiences: list[TextTask] = []
    first = 0
    for task in tasks:
        count = task.num_outputs
        step = size or count
        for start in range(0, count, step):
            group = range(start, min(start + step, count))
            part = "" if len(group) == count else f".{'-'.join(map(str, group))}"
            experiences.append(
                replace(
                    task,
                    name=f"{task.name}{part}",
                    label_names=names,
                    metric="accuracy",
                    positive=None,
                    prompt=None,
                    causal_prompt=None,
                    source={**task.source, "classes": [first + label for label in group]},
                    **{split: _pick_rows(task, split, group, first) for split in task.splits},
                )
            )
        first += count
    return tuple(experiences)


def _pick_rows(task: TextTask, split: str, classes: range, first: int) -> tuple[Row, ...]:
    """Return a task's rows of some classes, with class numbers from `first`."""
    chosen = tuple(
        Row(row.text, row.text_pair, int(row.label) + first)
        for row in task.splits[split]
        if row.label in classes
    )
    if not chosen:
        named = ", ".join(task.label_names[label] for label in classes)
        raise InputError(
            f"task {task.name!r} has no {split} rows of the classes {named}, which are an "
            "experience of their own"
        )
    return chosen
