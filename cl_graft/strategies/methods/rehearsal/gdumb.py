"""GDumb: training on the kept rows alone, from the base again for every task."""

from __future__ import annotations

from avalanche.training.plugins import GDumbPlugin
from avalanche.training.templates import SupervisedTemplate

from cl_graft.strategies import StrategyInputs, count_stored, register_strategy, setting
from cl_graft.strategies.method import StreamShape
from cl_graft.strategies.methods.rehearsal.row_buffers import check_batch_size

__all__ = ["GDumb"]


@register_strategy(
    "gdumb",
    family="rehearsal",
    source="Prabhu et al., 2020, https://doi.org/10.1007/978-3-030-58536-5_31; Avalanche's GDumb: "
    "on the kept rows alone, from the base again for every task",
    adds="rows, `mem_size` in all; the first task a copy of the base",
    kinds="classification",
)
class GDumb:
    """Keep rows of all tasks, and train on these alone from the base."""

    mem_size: int = setting(200, "Rows kept, of all tasks together.", least=1)

    storage_bytes = count_stored(GDumbPlugin, "storage_policy.buffer", "init_model")

    def check_stream(self, shape: StreamShape) -> None:
        """Refuse batches with fewer rows than there are tasks."""
        check_batch_size("gdumb", "batch_size", rows=shape.batch_size, tasks=shape.tasks)

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return Naive with Avalanche's `GDumbPlugin`."""
        rows, tasks = inputs.first_schedule.batch_size, len(inputs.stream.tasks)
        check_batch_size("gdumb", "batch_size", rows=rows, tasks=tasks)
        return inputs.naive(GDumbPlugin(mem_size=self.mem_size))
