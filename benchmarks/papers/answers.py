"""Answers of a model on the rows of a task, and their score."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cl_graft.metrics import ece, score
from cl_graft.metrics.task_score import Scorer


@dataclass(frozen=True, eq=False)
class Answers:
    """Answers of a model on the rows of a task."""

    logits: Tensor
    targets: Tensor
    metric: str | Scorer

    @property
    def probabilities(self) -> Tensor:
        """Class probabilities, of shape (n, K)."""
        return self.logits.float().softmax(-1)

    @property
    def score(self) -> float:
        """The task's score."""
        return score(self.logits, self.targets, self.metric)

    @property
    def best_constant(self) -> float:
        """The best score that one and the same answer to every row has."""
        classes = self.logits.shape[1]
        constant = torch.eye(classes).unsqueeze(1).expand(-1, len(self.targets), -1)
        return max(score(logits, self.targets, self.metric) for logits in constant)

    @property
    def ece(self) -> float:
        """Expected calibration error, in [0, 1]."""
        return ece(self.probabilities, self.targets)
