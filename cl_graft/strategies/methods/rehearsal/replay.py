"""Replay: every step has as many rows of earlier tasks as new ones."""

from __future__ import annotations

from avalanche.training.plugins import ReplayPlugin
from avalanche.training.templates import SupervisedTemplate

from cl_graft.strategies import StrategyInputs, count_stored, register_strategy
from cl_graft.strategies.method import StreamShape
from cl_graft.strategies.methods.rehearsal.row_buffers import (
    batch_setting,
    count_shared_row_bytes,
    memory_setting,
)

__all__ = ["Replay"]


@register_strategy(
    "replay",
    family="rehearsal",
    source="Rolnick et al., 2018, https://arxiv.org/abs/1811.11682; Avalanche's Replay",
    adds="rows, `mem_size` in all",
    kinds="one",
)
class Replay:
    """Train on as many kept rows of earlier tasks in a step as on new ones."""

    mem_size: int = memory_setting()
    batch_size_mem: int = batch_setting()

    storage_bytes = count_stored(ReplayPlugin, "storage_policy.buffer")

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return Naive with Avalanche's `ReplayPlugin`."""
        plugin = ReplayPlugin(mem_size=self.mem_size, batch_size_mem=self.batch_size_mem or None)
        return inputs.naive(plugin)

    def task_bytes(self, shape: StreamShape) -> float:
        """Return the bytes of the kept rows."""
        return count_shared_row_bytes(shape, self.mem_size)
