"""A task that can be learned: a model at its base, training and dev rows, a loss and a score."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from cl_graft.errors import NotFinite
from cl_graft.runtime.batching import BatchOrder
from cl_graft.runtime.seeding import permutation
from cl_graft.training.examples import Examples, compute_logits
from cl_graft.training.fine_tuning import FineTuned, fine_tune
from cl_graft.training.fine_tuning_settings import FineTuning
from cl_graft.training.precision import loss_scale


@dataclass(frozen=True)
class Passes:
    """Rows that went through the model.

    Attributes:
        forward_backward: Rows whose loss was computed and differentiated.
        forward: Rows whose logits or features alone were computed.

    Examples:
        >>> Passes(forward_backward=8) + Passes(forward=2)
        Passes(forward_backward=8, forward=2)
    """

    forward_backward: int = 0
    forward: int = 0

    def __add__(self, other: Passes) -> Passes:
        return Passes(self.forward_backward + other.forward_backward, self.forward + other.forward)


def total_passes(parts: Iterable[Passes]) -> Passes:
    """Add up the passes of several phases."""
    return sum(parts, Passes())


_SCORED = 64
"""Rows of a batch that is scored by its loss."""


@dataclass(frozen=True, eq=False)
class LearnableTask:
    """One task to learn on a model that is at its base.

    Attributes:
        model: Module that holds the parameters under these names and that `forward` runs.
        parameters: Graftable parameters, by name.
        head: Parameters of the task's head, by name; empty for prompts.
        forward: Function of inputs that returns the task's logits.
        criterion: Function of (logits, targets) that returns the mean loss.
        score: Function of (logits, targets) that returns the score, higher is better.
        train: Training rows.
        dev: Dev rows, on which checkpoints, masks and budgets are chosen.
        device: Device that batches are moved to.
        content: Fingerprints of model and data; random choices are a function of it and the
            settings.
        reading: Hash of what else the outcome depends on, such as the model's config and the label
            words.
        head_module: Module that `head` belongs to, called once a batch; None where there is none,
            or where it cannot be fitted alone.
        head_takes_tokens: Whether `head_module` is called with the states of all tokens, (n, l, D),
            and their segments, (n, l), 0 for padding; otherwise with a row's features alone.
        precision: Precision of `forward`, a name in `cl_graft.training.precision.PRECISIONS`.
        recomputes: Whether the model uses gradient checkpointing, which acts in train mode only.
        scored_by_loss: Whether rows are scored by the loss, negated, batch by batch, and not by
            `score`, as where targets are no class ids.
    """

    model: nn.Module
    parameters: Mapping[str, nn.Parameter]
    head: Mapping[str, nn.Parameter]
    forward: Callable[[Any], Tensor]
    criterion: Callable[[Tensor, Tensor], Tensor]
    score: Callable[[Tensor, Tensor], float]
    train: Examples
    dev: Examples
    device: torch.device
    content: str
    reading: str = ""
    head_module: nn.Module | None = None
    head_takes_tokens: bool = False
    precision: str = "fp32"
    recomputes: bool = False
    scored_by_loss: bool = False

    @property
    def identity(self) -> str:
        """Hashes of all that the outcome depends on beside settings; part of every cache key."""
        return f"{self.content}|{self.reading}"

    @property
    def cached_head_names(self) -> dict[str, str]:
        """Names of the head's tensors in a cache; their own depend on the order of the stream."""
        return {name: f"head.{number}" for number, name in enumerate(self.head)}

    def to_cache(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return tensors under their names in a cache."""
        cached = self.cached_head_names
        return {cached.get(name, name): tensor for name, tensor in tensors.items()}

    def from_cache(self, tensors: Mapping[str, Tensor], names: Iterable[str]) -> dict[str, Tensor]:
        """Return tensors of a cache under their own names, on the task's device."""
        cached = self.cached_head_names
        return {name: tensors[cached.get(name, name)].to(self.device) for name in names}

    def training_loss(
        self, settings: FineTuning, *, seed: int
    ) -> Callable[[int], Tensor | Iterable[Tensor]]:
        """Return the function of a step that computes the loss of its batch, for `fine_tune`."""
        lengths = self.train.lengths if settings.group_by_length else None
        order = BatchOrder(len(self.train), settings.batch_size, seed, "batches", lengths=lengths)
        micro = settings.micro_batch
        if micro:
            return lambda step: self.losses(order(step), micro_batch=micro)
        return lambda step: self.loss(order(step))

    def fine_tune(
        self, trained: Mapping[str, nn.Parameter], settings: FineTuning, *, seed: int, **more: Any
    ) -> FineTuned:
        """Train parameters of the model on the task's rows, and choose the best step on dev."""
        return fine_tune(
            self.model,
            trained,
            loss=self.training_loss(settings, seed=seed),
            settings=settings,
            seed=seed,
            scale=loss_scale(self.precision),
            dev_score=self.dev_score,
            **more,
        )

    def dev_score(self) -> float:
        """Score the model as it is now on dev."""
        return self._score(self.dev, range(len(self.dev)))

    def dev_logits(self) -> tuple[Tensor, Tensor]:
        """Answer dev with the model as it is now: logits, (n, K), and their targets, on the CPU."""
        return compute_logits(self.forward, self.dev, device=self.device)

    def train_score(self, *, rows: int, seed: int) -> float:
        """Score the model as it is now on the first `rows` shuffled training rows."""
        return self._score(
            self.train, permutation(len(self.train), seed, "train score").tolist()[:rows]
        )

    def loss(self, places: Sequence[int]) -> Tensor:
        """Compute the mean loss of some training rows."""
        return self._loss(self.train, places)

    def losses(self, places: Sequence[int], *, micro_batch: int) -> Iterator[Tensor]:
        """Yield terms of a few rows each whose sum is the mean loss of some training rows."""
        places = self.train.sort_by_length(places)
        for first in range(0, len(places), micro_batch):
            part = places[first : first + micro_batch]
            yield self.loss(part) * (len(part) / len(places))

    def _score(self, rows: Examples, places: Sequence[int]) -> float:
        if not self.scored_by_loss:
            return self.score(
                *compute_logits(self.forward, rows, device=self.device, places=places)
            )
        total = 0.0
        with torch.no_grad():
            for first in range(0, len(places), _SCORED):
                part = places[first : first + _SCORED]
                total += float(self._loss(rows, part)) * (len(part) / len(places))
        if not math.isfinite(total):
            raise NotFinite(f"the loss of {len(places)} rows is {total}; did the training diverge?")
        return -total

    def _loss(self, rows: Examples, places: Sequence[int]) -> Tensor:
        inputs, targets = rows.batch(places)
        return self.criterion(self.forward(inputs.to(self.device)), targets.to(self.device))
