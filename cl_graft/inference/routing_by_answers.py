"""Picking a task by answers: the one whose graft and head are surest of a text.

Both rules ask every task, so a text costs as many forward passes as there are tasks; nothing is
kept for them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

__all__ = ["least_energy", "least_entropy"]


def least_entropy(logits: Mapping[int, Tensor]) -> Tensor:
    """Pick the task whose answer has the least entropy, as a share of the most it could have.

    The entropy of p over K classes is −Σ p log p; divided by log K it is in [0, 1] for any number
    of classes. SupSup infers tasks by entropy (Wortsman et al., 2020,
    https://arxiv.org/abs/2006.14769). Of equally sure tasks the first counts.

    Args:
        logits: By number of the task, of shape (n, K) with the K ≥ 2 of the task.

    Returns:
        Numbers of tasks, int64 of shape (n,).
    """

    def share(own: Tensor) -> Tensor:
        surprise = own.log_softmax(1)
        return -(surprise.exp() * surprise).sum(1) / math.log(own.shape[1])

    return _least(logits, share)


def least_energy(logits: Mapping[int, Tensor]) -> Tensor:
    """Pick the task whose answer has the least energy, −log Σ exp(logits).

    Liu et al., 2020, at temperature 1, https://arxiv.org/abs/2010.03759. Of equal energies the
    first task's counts.

    Args:
        logits: By number of the task, of shape (n, K) with the K of the task.

    Returns:
        Numbers of tasks, int64 of shape (n,).
    """
    return _least(logits, lambda own: -own.logsumexp(1))


def _least(logits: Mapping[int, Tensor], measure: Callable[[Tensor], Tensor]) -> Tensor:
    measured = torch.stack([measure(own.detach().cpu().double()) for own in logits.values()], 1)
    return torch.tensor(list(logits), dtype=torch.int64)[measured.argmin(1)]
