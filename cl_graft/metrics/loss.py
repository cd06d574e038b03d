"""The loss of a task: cross-entropy over classes, squared error of a single real number."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

__all__ = ["task_loss"]


def task_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean loss of a batch.

    Args:
        logits: Of shape (n, K); (n, 1) for a regression.
        targets: Of shape (n,): class ids, or real numbers for a regression.

    Returns:
        A scalar: the cross-entropy; for real targets the mean squared error, which GLUE's STS-B
        is trained with (https://arxiv.org/abs/1810.04805, Section 4.1).
    """
    if targets.is_floating_point():
        return F.mse_loss(logits.squeeze(-1).float(), targets)
    return F.cross_entropy(logits, targets)
