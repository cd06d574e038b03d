"""GEM: gradients are projected so that a step raises the loss on no earlier task's kept rows."""

from __future__ import annotations

from avalanche.training.plugins import GEMPlugin
from avalanche.training.templates import SupervisedTemplate

from cl_graft.strategies import StrategyInputs, count_stored, register_strategy, setting
from cl_graft.strategies.method import StreamShape
from cl_graft.strategies.methods.rehearsal.head_gradients import HeadGradients
from cl_graft.strategies.methods.rehearsal.row_buffers import rows_per_task_setting

__all__ = ["GEM", "GEMOnHeads"]


class GEMOnHeads(HeadGradients, GEMPlugin):
    """Avalanche's `GEMPlugin`, whose projection reaches the heads of finished tasks, too."""


@register_strategy(
    "gem",
    family="rehearsal",
    source="Lopez-Paz and Ranzato, 2017, https://arxiv.org/abs/1706.08840; Avalanche's GEM",
    adds="`patterns_per_experience` rows",
    requires="quadprog",
    kinds="one",
)
class GEM:
    """Project the gradient so that it does not harm kept rows of each earlier task."""

    patterns_per_experience: int = rows_per_task_setting()
    memory_strength: float = setting(
        0.5, "Added towards backward transfer.", least=0, grid=(0.0, 0.5, 1.0)
    )

    storage_bytes = count_stored(GEMPlugin, "memory_x", "memory_y", "memory_tid")

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return Naive with `GEMOnHeads`."""
        return inputs.naive(GEMOnHeads(self.patterns_per_experience, self.memory_strength))

    def task_bytes(self, shape: StreamShape) -> float:
        """Return the bytes of the rows kept of a task, with their targets and task labels."""
        return self.patterns_per_experience * (shape.row_bytes + 16)
