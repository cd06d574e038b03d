"""A linear probe: a task's head, fitted to the features of a frozen model.

A head fits the body that it was trained with: neither the base nor a graft that keeps a part of a
dense run has a head that fits. So the features of a few hundred rows are computed once, and the
head alone is fitted to them with a ridge penalty, whose strength is chosen on dev. That costs a few
hundred forward passes and milliseconds of algebra.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from cl_graft.errors import DivergedError
from cl_graft.grafts.graft import snapshot
from cl_graft.runtime.seeding import permutation
from cl_graft.training.examples import Examples
from cl_graft.training.learnable_task import LearnableTask
from cl_graft.training.passes import Passes

__all__ = [
    "RIDGES",
    "DevScores",
    "count_fit_passes",
    "count_probe_passes",
    "fit_head",
    "score_fitted_head",
    "score_on_dev",
]

RIDGES = (3e-2, 1e-2, 3e-3, 1e-3, 3e-4)
"""Strengths of the penalty to choose from, in units of the features' mean squared norm."""

_ITERATIONS = 50
_BATCH = 32
_FOLDS = 5


def fit_head(task: LearnableTask, *, rows: int, seed: int) -> dict[str, Tensor]:
    """Fit a task's head to the features that the model has now; both keep their values.

    The model is left in eval mode.

    Minimises criterion(head(features), targets) + ½ λ s² ‖W‖² by L-BFGS from the head's values,
    where W are its weights without biases, s² is the mean squared norm of the features, and λ is
    the one of `RIDGES` with the smallest loss on dev. Training rows cannot choose it: a body that
    was trained on them has features that fit them too well.

    Args:
        task: The task, on the model whose features the head is to fit.
        rows: Training rows to look at, at least 1; fewer where the task has fewer.
        seed: Draws the rows.

    Returns:
        The head's values by the names of `task.head`; empty if there is nothing to train.

    Raises:
        DivergedError: If a feature is NaN or infinite.
    """
    head = task.head_module
    if head is None or not task.head:
        return snapshot(task.head)
    return _fit(task, head, rows, seed)[0]


def score_fitted_head(
    task: LearnableTask, *, rows: int, seed: int
) -> tuple[dict[str, Tensor], float]:
    """Fit a task's head as `fit_head` does, and score it on dev with the model as it is now.

    A prompt, or a head that cannot be fitted alone, is scored as it is.

    Args:
        task: The task; as in `fit_head`, as is all that follows.
        rows: Training rows to look at.
        seed: Draws the rows.

    Returns:
        The head's values, and their score on dev.

    Raises:
        DivergedError: If a feature is NaN or infinite.
    """
    head = task.head_module
    if head is None or not task.head:
        task.model.eval()
        return snapshot(task.head), task.dev_score()
    values, logits, targets = _fit(task, head, rows, seed)
    return values, task.score(logits.cpu(), targets.cpu())


def _fit(
    task: LearnableTask, head: nn.Module, rows: int, seed: int
) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """Return the values of the head that fit best, its logits on dev, and dev's targets."""
    drawn = permutation(len(task.train), seed, "warm-up").tolist()[:rows]
    fit = _Fit(task, head, _features(task, head, task.train, drawn))
    dev = _features(task, head, task.dev, range(len(task.dev)))
    fitted = [fit.solve(ridge) for ridge in RIDGES]
    best = min(fitted, key=lambda values: fit.loss(values, dev))
    return fit.named(best), fit.answer(best, dev), dev.targets


class DevScores(NamedTuple):
    """Scores of a model on dev.

    Attributes:
        own_head: Score under the head that the model has.
        fitted_head: Score under heads that are fitted to the model's features of dev itself, each
            fold by a head that was fitted to the others; the same as `own_head` where there is no
            head to fit.
    """

    own_head: float
    fitted_head: float


def score_on_dev(task: LearnableTask, *, seed: int) -> DevScores:
    """Score the model as it is now on dev, in one pass over dev.

    The model is left in eval mode. The penalty of the fitted heads is the one of `RIDGES` with the
    smallest loss on the folds that were left out.

    Args:
        task: The task, on the model to score.
        seed: Draws the folds.

    Raises:
        DivergedError: If a feature is NaN or infinite.
    """
    head, count = task.head_module, len(task.dev)
    if head is None or not task.head or count < _FOLDS:
        task.model.eval()
        score = task.dev_score()
        return DevScores(score, score)
    dev = _features(task, head, task.dev, range(count))
    folds = permutation(count, seed, "folds").to(dev.targets.device).chunk(_FOLDS)
    best, answers = math.inf, dev.logits
    for ridge in RIDGES:
        logits, loss = torch.empty_like(dev.logits), 0.0
        for fold in folds:
            rest = torch.ones(count, dtype=torch.bool, device=fold.device)
            rest[fold] = False
            fit = _Fit(task, head, dev.at(rest))
            values, left_out = fit.solve(ridge), dev.at(fold)
            logits[fold] = fit.answer(values, left_out)
            loss += len(fold) * fit.loss(values, left_out)
        if loss < best:
            best, answers = loss, logits
    targets = dev.targets.cpu()
    return DevScores(task.score(dev.logits.cpu(), targets), task.score(answers.cpu(), targets))


def count_fit_passes(task: LearnableTask, *, rows: int) -> Passes:
    """Return how many rows a fit of a task's head takes."""
    if task.head_module is None or not task.head:
        return Passes()
    return Passes(forward=min(rows, len(task.train)) + len(task.dev))


def count_probe_passes(task: LearnableTask, *, rows: int) -> Passes:
    """Return how many rows `score_fitted_head` takes."""
    fitted = count_fit_passes(task, rows=rows)
    return fitted if fitted.forward else Passes(forward=len(task.dev))


class _Features(NamedTuple):
    """Inputs of a head, its logits (both fp32) and the targets, for some rows."""

    features: Tensor
    logits: Tensor
    targets: Tensor

    def at(self, rows: Tensor) -> _Features:
        """Return those of some of the rows."""
        return _Features(self.features[rows], self.logits[rows], self.targets[rows])


def _features(
    task: LearnableTask, head: nn.Module, examples: Examples, places: Sequence[int]
) -> _Features:
    """Compute features, logits and targets of some rows."""
    seen: list[Tensor] = []
    handle = head.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach()))
    logits: list[Tensor] = []
    targets: list[Tensor] = []
    places = examples.sort_by_length(places)
    task.model.eval()
    try:
        with torch.no_grad():
            for first in range(0, len(places), _BATCH):
                inputs, target = examples.batch(places[first : first + _BATCH])
                logits.append(task.forward(inputs.to(task.device)))
                targets.append(target)
    finally:
        handle.remove()
    if len(seen) != len(targets):
        raise ValueError(
            f"a head that is called once a batch can be fitted; this one was called {len(seen)} "
            f"times in {len(targets)} batches"
        )
    features = torch.cat(seen).float()
    if not bool(features.isfinite().all()):
        raise DivergedError(
            "the model answers NaN or infinities on the rows that a head is fitted to; are its "
            "weights whole, and is the precision wide enough?"
        )
    return _Features(features, torch.cat(logits).float(), torch.cat(targets).to(task.device))


class _Fit:
    """Fits of one head to one set of features, in fp32."""

    def __init__(self, task: LearnableTask, head: nn.Module, rows: _Features) -> None:
        self._task = task
        self._head = head
        self._rows = rows
        self._scale = float(rows.features.flatten(1).square().sum(1).mean())
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
            loss = self._loss(values, self._rows)
            value = loss + 0.5 * ridge * self._scale * penalty
            value.backward()
            return value.detach()

        with torch.enable_grad():
            optimizer.step(closure)
        return {name: value.detach() for name, value in values.items()}

    def loss(self, values: Mapping[str, Tensor], rows: _Features) -> float:
        """Return the loss of values on other rows; infinite where it is NaN."""
        with torch.no_grad():
            value = float(self._loss(values, rows))
        return math.inf if math.isnan(value) else value

    def answer(self, values: Mapping[str, Tensor], rows: _Features) -> Tensor:
        """Return the logits of a head with these values, fp32."""
        return functional_call(self._head, dict(values), (rows.features,)).detach().float()

    def named(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return values under the task's names and in its dtypes; the first ones if not finite."""
        own = {id(parameter): name for name, parameter in self._task.head.items()}
        found = snapshot(self._task.head)
        if not all(bool(value.isfinite().all()) for value in values.values()):
            return found
        for name, parameter in self._head.named_parameters():
            if id(parameter) in own:
                found[own[id(parameter)]] = values[name].to(parameter.dtype)
        return found

    def _loss(self, values: Mapping[str, Tensor], rows: _Features) -> Tensor:
        logits = functional_call(self._head, dict(values), (rows.features,))
        return self._task.criterion(logits.float(), rows.targets)
