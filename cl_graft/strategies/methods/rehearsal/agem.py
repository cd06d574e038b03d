"""A-GEM: gradients are projected so that a step does not raise the mean loss on kept rows."""

from __future__ import annotations

from avalanche.training.plugins import AGEMPlugin
from avalanche.training.templates import SupervisedTemplate

from cl_graft.strategies import StrategyInputs, count_stored, register_strategy, setting
from cl_graft.strategies.method import StreamShape
from cl_graft.strategies.methods.rehearsal.head_gradients import HeadGradients
from cl_graft.strategies.methods.rehearsal.row_buffers import (
    check_batch_size,
    rows_per_task_setting,
)

__all__ = ["AGEM", "AGEMOnHeads"]


class AGEMOnHeads(HeadGradients, AGEMPlugin):
    """Avalanche's `AGEMPlugin`, whose projection reaches the heads of finished tasks, too."""


@register_strategy(
    "agem",
    family="rehearsal",
    source="Chaudhry et al., 2019, https://arxiv.org/abs/1812.00420; Avalanche's AGEM",
    adds="`patterns_per_experience` rows",
    kinds="one",
)
class AGEM:
    """Project the gradient so that it does not harm kept rows of all earlier tasks on average."""

    patterns_per_experience: int = rows_per_task_setting()
    sample_size: int = setting(64, "Kept rows a step, of all tasks together.", least=1)

    storage_bytes = count_stored(AGEMPlugin, "buffers")

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return Naive with `AGEMOnHeads`."""
        self._refuse_small(len(inputs.stream.tasks))
        return inputs.naive(AGEMOnHeads(self.patterns_per_experience, self.sample_size))

    def check_stream(self, shape: StreamShape) -> None:
        """Refuse batches of kept rows that cannot have one of each earlier task."""
        self._refuse_small(shape.tasks)

    def _refuse_small(self, tasks: int) -> None:
        check_batch_size("agem", "sample_size", rows=self.sample_size, tasks=tasks - 1)

    def task_bytes(self, shape: StreamShape) -> float:
        """Return the bytes of the rows kept of a task."""
        return self.patterns_per_experience * shape.row_bytes
