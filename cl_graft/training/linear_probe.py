"""A linear probe: a task's head, fitted by L-BFGS to the features of a frozen model.

A head that answers at tokens takes the states of all tokens. They are kept of as many rows as hold
65,536 tokens, 4 bytes a token and hidden unit, so 201 MB at most at 768 units.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from cl_graft.errors import DivergedError
from cl_graft.grafts.graft import snapshot
from cl_graft.runtime.seeding import permutation
from cl_graft.training.examples import Examples
from cl_graft.training.learnable_task import LearnableTask, Passes

RIDGES = (3e-2, 1e-2, 3e-3, 1e-3, 3e-4)
"""Strengths of the penalty to choose from, in units of the features' mean squared norm."""

_ITERATIONS = 50
_BATCH = 32
_TOKENS = 1 << 16
"""Largest number of tokens whose states are kept."""


def check_head_fit(task: LearnableTask) -> None:
    """Refuse a head that `fit_head` cannot fit, by a row of dev; the model goes to eval mode."""
    if task.head_module is not None and task.head:
        next(_batches(task, task.head_module, task.dev, [0]), None)


def fit_head(task: LearnableTask, *, rows: int, seed: int) -> dict[str, Tensor]:
    """Fit a task's head to the features that the model has now; both keep their values.

    Minimises criterion(head(features), targets) + ½ λ s² ‖W‖² from the head's values, where W are
    its weights without biases, s² is the mean squared norm of the features, and λ is the one of
    `RIDGES` with the smallest loss on dev. The model is left in eval mode.

    Args:
        task: The task, on the model whose features the head is to fit.
        rows: Number of training rows, at least 1.
        seed: Seed of the draw of rows.

    Returns:
        The head's values by the names of `task.head`; empty if there is nothing to train.

    Raises:
        DivergedError: If a feature is NaN or infinite.
    """
    head = task.head_module
    if head is None or not task.head:
        return snapshot(task.head)
    drawn = permutation(len(task.train), seed, "warm-up").tolist()[:rows]
    fit = _Fit(task, head, list(_features(task, head, task.train, _bound(task, task.train, drawn))))
    fitted = [fit.solve(ridge) for ridge in RIDGES]
    losses = [0.0] * len(fitted)
    for part in _features(task, head, task.dev, range(len(task.dev))):
        for number, values in enumerate(fitted):
            losses[number] += fit.loss(values, [part]) * (len(part) / len(task.dev))
    return fit.name_values(fitted[min(range(len(fitted)), key=losses.__getitem__)])


def count_fit_passes(task: LearnableTask, *, rows: int) -> Passes:
    """Return how many rows a fit of a task's head takes."""
    if task.head_module is None or not task.head:
        return Passes()
    return Passes(forward=min(rows, len(task.train)) + len(task.dev))


@dataclass(frozen=True, eq=False)
class _Features:
    """What a head is called with, in fp32, and the targets, for some rows."""

    inputs: tuple[Any, ...]
    targets: Tensor

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def squared_norms(self) -> Tensor:
        """Squared norm of each row's features, or of the state of each token that is no padding."""
        features, *more = self.inputs
        if not more:
            return features.flatten(1).square().sum(1)
        return features[more[0] != 0].square().sum(1)


def _bound(task: LearnableTask, examples: Examples, places: Sequence[int]) -> Sequence[int]:
    """Return as many of the first places as have `_TOKENS` tokens, if the head takes all states."""
    if not task.head_takes_tokens:
        return places
    lengths, tokens = examples.lengths, 0
    for number, row in enumerate(places):
        tokens += examples.batch([row])[0].shape[-1] if lengths is None else int(lengths[row])
        if tokens > _TOKENS and number:
            return places[:number]
    return places


def _features(
    task: LearnableTask, head: nn.Module, examples: Examples, places: Sequence[int]
) -> Iterator[_Features]:
    """Compute features and targets of some rows, by batch where a head takes tokens."""
    batches = _batches(task, head, examples, places)
    if task.head_takes_tokens:
        yield from batches
        return
    parts = list(batches)
    yield _Features(
        (torch.cat([part.inputs[0] for part in parts]),),
        torch.cat([part.targets for part in parts]),
    )


def _batches(
    task: LearnableTask, head: nn.Module, examples: Examples, places: Sequence[int]
) -> Iterator[_Features]:
    """Compute features and targets of some rows, batch by batch."""
    places = examples.sort_by_length(places)
    seen: list[tuple[Any, ...]] = []
    task.model.eval()
    for first in range(0, len(places), _BATCH):
        inputs, targets = examples.batch(places[first : first + _BATCH])
        seen.clear()
        handle = head.register_forward_pre_hook(lambda _, given: seen.append(given))
        try:
            with torch.no_grad():
                task.forward(inputs.to(task.device))
        finally:
            handle.remove()
        if len(seen) != 1:
            raise ValueError(
                "a head that is called once a batch can be fitted; this one was called "
                f"{len(seen)} times in a batch; head_refit_rows=0 leaves it as the dense run did"
            )
        features, *more = seen[0]
        features = features.detach().float()
        if not bool(features.isfinite().all()):
            raise DivergedError(
                "the model answers NaN or infinities on the rows that a head is fitted to; are its "
                "weights whole, and is the precision wide enough?"
            )
        yield _Features((features, *more), targets.to(task.device))


class _Fit:
    """Fits of one head to one set of features, in fp32."""

    def __init__(self, task: LearnableTask, head: nn.Module, parts: Sequence[_Features]) -> None:
        self._task = task
        self._head = head
        self._parts = parts
        self._scale = float(torch.cat([part.squared_norms for part in parts]).mean())
        self._start = {
            name: parameter.detach().float() for name, parameter in head.named_parameters()
        }

    def solve(self, ridge: float) -> dict[str, Tensor]:
        """Return the head's values that fit the rows best."""
        values = {name: value.clone().requires_grad_() for name, value in self._start.items()}
        weights = [value for name, value in values.items() if not name.endswith("bias")]
        optimizer = torch.optim.LBFGS(
            list(values.values()), max_iter=_ITERATIONS, line_search_fn="strong_wolfe"
        )

        def closure() -> Tensor:
            optimizer.zero_grad()
            penalty = sum((weight.square().sum() for weight in weights), torch.zeros(()))
            loss = self._loss(values, self._parts)
            value = loss + 0.5 * ridge * self._scale * penalty
            value.backward()
            return value.detach()

        with torch.enable_grad():
            optimizer.step(closure)
        return {name: value.detach() for name, value in values.items()}

    def loss(self, values: Mapping[str, Tensor], parts: Sequence[_Features]) -> float:
        """Return the loss of values on other rows; infinite where it is NaN."""
        with torch.no_grad():
            value = float(self._loss(values, parts))
        return math.inf if math.isnan(value) else value

    def name_values(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return values under the task's names and in its dtypes; the first ones if not finite."""
        names = {id(parameter): name for name, parameter in self._task.head.items()}
        named = snapshot(self._task.head)
        if not all(bool(value.isfinite().all()) for value in values.values()):
            return named
        for name, parameter in self._head.named_parameters():
            if id(parameter) in names:
                named[names[id(parameter)]] = values[name].to(parameter.dtype)
        return named

    def _loss(self, values: Mapping[str, Tensor], parts: Sequence[_Features]) -> Tensor:
        """Return the mean loss of the rows of all parts."""
        losses = []
        for part in parts:
            logits = functional_call(self._head, dict(values), part.inputs)
            losses.append(self._task.criterion(logits.float(), part.targets))
        if len(losses) == 1:
            return losses[0]
        sizes = torch.tensor([len(part) for part in parts], device=losses[0].device)
        return (torch.stack(losses) * (sizes / sizes.sum())).sum()
