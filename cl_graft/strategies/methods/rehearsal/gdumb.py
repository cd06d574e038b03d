"""GDumb: training on the kept rows alone, from the base again for every task."""

from __future__ import annotations

from avalanche.training.plugins import GDumbPlugin
from avalanche.training.templates import SupervisedTemplate

from cl_graft.strategies.method import setting
from cl_graft.strategies.methods.rehearsal.kept_rows import check_batch, kept_row_bytes
from cl_graft.strategies.registry import register_strategy
from cl_graft.strategies.stored_bytes import count_bytes, find_plugin
from cl_graft.strategies.strategy_inputs import StrategyInputs

__all__ = ["GDumb"]


@register_strategy(
    "gdumb",
    family="rehearsal",
    source="Prabhu et al., 2020, https://doi.org/10.1007/978-3-030-58536-5_31; Avalanche's GDumb: "
    "on the kept rows alone, from the base again for every task",
    adds="rows, `mem_size` in all; the first task a copy of the base",
)
class GDumb:
    """Keep rows of all tasks, and train on these alone from the base."""

    mem_size: int = setting(200, "Rows kept, of all tasks together.", least=1)

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return Naive with Avalanche's `GDumbPlugin`."""
        rows, tasks = inputs.first_schedule.batch_size, len(inputs.stream.tasks)
        check_batch("gdumb", "batch_size", rows=rows, tasks=tasks)
        return inputs.naive(GDumbPlugin(mem_size=self.mem_size))

    @staticmethod
    def storage_bytes(strategy: SupervisedTemplate) -> int:
        """Return the bytes of the kept rows and of the base."""
        plugin = find_plugin(strategy, GDumbPlugin)
        return kept_row_bytes(plugin) + count_bytes(plugin.init_model)
