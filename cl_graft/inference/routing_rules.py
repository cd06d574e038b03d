"""Routing: a rule that picks the task of a text by features of the base.

`ClassStatistics` holds sums over rows, so a router learned task by task is the one learned from all
rows at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class ClassStatistics:
    """Means of the features of classes, and how rows scatter around them.

    Attributes:
        tasks: Number of each class's task, such as the position of its entry, int64 (C,).
        classes: The number of each class in its task, int64 (C,).
        counts: Rows of each class, int64 (C,).
        means: Mean features of each class, (C, d), fp32.
        scatter: Σ (z − mean of z's class)(z − mean of z's class)ᵀ over all rows, (d, d), fp32.
    """

    tasks: Tensor
    classes: Tensor
    counts: Tensor
    means: Tensor
    scatter: Tensor

    @classmethod
    def empty(cls, size: int) -> ClassStatistics:
        """Return the statistics of no rows of `size` features."""
        none = torch.empty(0, dtype=torch.int64)
        return cls(none, none, none, torch.empty(0, size), torch.zeros(size, size))

    def with_rows(self, features: Tensor, targets: Tensor, *, task: int) -> ClassStatistics:
        """Return the statistics with rows of a task added: features, (n, d), and classes, (n,)."""
        features, targets = features.detach().cpu().double(), targets.detach().cpu().long()
        tasks, classes = self.tasks.tolist(), self.classes.tolist()
        known = {named: at for at, named in enumerate(zip(tasks, classes, strict=True))}
        counts, means = self.counts.tolist(), list(self.means.double())
        scatter = self.scatter.double()
        for number in targets.unique().tolist():
            rows = features[targets == number]
            middle, count = rows.mean(0), len(rows)
            around = rows - middle
            at = known.get((task, number))
            if at is None:
                tasks.append(task)
                classes.append(number)
                counts.append(count)
                means.append(middle)
            else:
                # Both parts scatter around their common mean, too (Chan et al., 1983).
                apart = means[at] - middle
                both = counts[at] + count
                around = torch.cat([around, apart[None] * (counts[at] * count / both) ** 0.5])
                means[at] = middle + apart * (counts[at] / both)
                counts[at] = both
            scatter = scatter + around.T @ around
        return ClassStatistics(
            torch.tensor(tasks, dtype=torch.int64),
            torch.tensor(classes, dtype=torch.int64),
            torch.tensor(counts, dtype=torch.int64),
            torch.stack(means).float() if means else self.means,
            scatter.float(),
        )


def discriminant(features: Tensor, known: ClassStatistics, *, shrinkage: float) -> Tensor:
    """Pick the likeliest task if the features of each class are normal, with one covariance.

    Linear discriminant analysis as it is learned from a stream (Hayes and Kanan, 2020,
    https://arxiv.org/abs/1909.01520): the log-likelihood of class c is, up to a constant, μ_cᵀ Σ⁻¹
    z − μ_cᵀ Σ⁻¹ μ_c / 2, with Σ = (1 − shrinkage) · S + shrinkage · trace(S) / d · I. A task's
    likelihood is the mean of its classes'. Of equally likely tasks the smaller number counts.
    """
    if not 0 < shrinkage <= 1:
        raise ValueError(f"shrinkage must be in (0, 1], got {shrinkage}")
    covariance = known.scatter.double() / max(1, int(known.counts.sum()) - len(known.counts))
    size = len(covariance)
    # Where rows do not scatter at all, any covariance gives the nearest mean.
    spread = float(covariance.trace()) / size or 1.0
    identity = torch.eye(size, dtype=torch.float64)
    means = known.means.double()
    mixed = (1 - shrinkage) * covariance + shrinkage * spread * identity
    weights = torch.linalg.solve(mixed, means.T)
    scores = features.detach().cpu().double() @ weights - (means * weights.T).sum(1) / 2
    labels = known.tasks.unique()
    of_tasks = [
        scores[:, known.tasks == label].logsumexp(1) - float((known.tasks == label).sum().log())
        for label in labels
    ]
    return labels[torch.stack(of_tasks, dim=1).argmax(1)]
