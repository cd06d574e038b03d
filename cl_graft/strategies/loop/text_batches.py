"""TextBatches: batches of a text stream, indexed at once in its tensors and grouped by length."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from avalanche.core import SupervisedPlugin
from torch import Tensor

from cl_graft.runtime.batching import BatchOrder
from cl_graft.runtime.seeding import derive
from cl_graft.strategies.strategy import Strategy
from cl_graft.training.examples import Examples


class TextBatches(SupervisedPlugin, supports_distributed=True):
    """Replace the loader of experiences that `text_stream` made.

    Training batches are those of a `BatchOrder`: all equally large, and a function of the seed, the
    task's rows and the step, of similar lengths where asked for. Experiences without rows in
    memory, or whose data another plugin changed, keep Avalanche's loader. Give it before plugins
    that set a loader of their own.

    Runs at: before_training_exp, before_eval_exp.
    """

    def __init__(self, seed: int, *, group_by_length: bool = False) -> None:
        super().__init__()
        self.seed = seed
        self.group_by_length = group_by_length

    def before_training_exp(self, strategy: Strategy, **kwargs: Any) -> None:
        """Train on shuffled batches."""
        rows = _rows(strategy)
        if rows is None:
            return
        strategy.dataloader = shuffle_batches(
            rows,
            _labels(strategy, rows),
            size=strategy.train_mb_size,
            seed=self.seed,
            group_by_length=self.group_by_length,
        )

    def before_eval_exp(self, strategy: Strategy, **kwargs: Any) -> None:
        """Evaluate on all rows in order."""
        rows = _rows(strategy)
        if rows is None:
            return
        size = strategy.eval_mb_size
        batches = [
            range(first, min(first + size, len(rows))) for first in range(0, len(rows), size)
        ]

        def in_order(step: int) -> range:
            return batches[step % len(batches)]

        labels = _labels(strategy, rows)
        strategy.dataloader = BatchLoader(rows, labels, size=size, places=in_order)


def shuffle_batches(
    rows: Examples, labels: Tensor, *, size: int, seed: int, group_by_length: bool = False
) -> BatchLoader:
    """Make shuffled batches of equal size, a function of the seed, the rows and the step."""
    seed = derive(seed, rows.fingerprint(), "train")
    lengths = rows.lengths if group_by_length else None
    order = BatchOrder(len(rows), size, seed, lengths=lengths)
    return BatchLoader(rows, labels, size=size, places=order)


class BatchLoader:
    """An iterable of an epoch's batches: inputs, targets, task labels."""

    def __init__(
        self, rows: Examples, labels: Tensor, *, size: int, places: Callable[[int], Sequence[int]]
    ) -> None:
        self._rows = rows
        self._labels = labels
        self._places = places
        self._batches = math.ceil(len(rows) / size)
        self._epoch = self._begun = 0

    def skip_(self, steps: int) -> None:
        """Begin with the batch of this step (from 0), in the middle of an epoch if need be."""
        self._epoch, self._begun = divmod(steps, self._batches)

    def __len__(self) -> int:
        return self._batches

    def __iter__(self) -> Iterator[list[Tensor]]:
        first = self._epoch * self._batches
        begun, self._begun = self._begun, 0
        self._epoch += 1
        for step in range(first + begun, first + self._batches):
            places = self._places(step)
            inputs, targets = self._rows.batch(places)
            yield [inputs, targets, self._labels[list(places)]]


def _rows(strategy: Strategy) -> Examples | None:
    """Return the experience's rows in memory; None if the strategy's data are others."""
    encoded = getattr(strategy.experience, "encoded", None)
    data = strategy.adapted_dataset
    if encoded is None or len(data) != len(encoded[1]):
        return None
    labels = getattr(data, "targets_task_labels", None)
    if labels is not None and set(labels.uniques) != {int(strategy.experience.task_label)}:
        return None
    return Examples(data, tensors=encoded)


def _labels(strategy: Strategy, rows: Examples) -> Tensor:
    return torch.full((len(rows),), int(strategy.experience.task_label))
