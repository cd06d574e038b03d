"""HeadGradients: gradients of 0 for the heads of finished tasks, before a gradient is projected."""

from __future__ import annotations

from typing import Any

import torch
from avalanche.core import SupervisedPlugin

__all__ = ["HeadGradients"]


class HeadGradients(SupervisedPlugin, supports_distributed=False):
    """Give heads of finished tasks a gradient of 0, so that the next base class projects them, too.

    Avalanche's plugins leave parameters without a gradient alone, so the part of the projection
    that lies in those heads would be missing, and the step would still harm the kept rows.

    Runs at: after_backward.
    """

    def after_backward(self, strategy: Any, **kwargs: Any) -> None:
        """Give heads without a gradient one of 0, and project."""
        for parameter in strategy.model.parameters():
            if parameter.requires_grad and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        super().after_backward(strategy, **kwargs)
