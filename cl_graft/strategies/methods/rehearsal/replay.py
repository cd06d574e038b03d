"""Replay: every step has as many rows of earlier tasks as new ones."""

from __future__ import annotations

from avalanche.training.plugins import ReplayPlugin
from avalanche.training.templates import SupervisedTemplate

from cl_graft.strategies.method import StreamShape
from cl_graft.strategies.methods.rehearsal.kept_rows import (
    batch_setting,
    kept_row_bytes,
    memory_setting,
    shared_row_bytes,
)
from cl_graft.strategies.registry import register_strategy
from cl_graft.strategies.stored_bytes import find_plugin
from cl_graft.strategies.strategy_inputs import StrategyInputs

__all__ = ["Replay"]


@register_strategy(
    "replay",
    family="rehearsal",
    source="Rolnick et al., 2018, https://arxiv.org/abs/1811.11682; Avalanche's Replay",
    adds="rows, `mem_size` in all",
)
class Replay:
    """Train on kept rows of earlier tasks beside the new ones."""

    mem_size: int = memory_setting()
    batch_size_mem: int = batch_setting()

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return Naive with Avalanche's `ReplayPlugin`."""
        plugin = ReplayPlugin(mem_size=self.mem_size, batch_size_mem=self.batch_size_mem or None)
        return inputs.naive(plugin)

    @staticmethod
    def storage_bytes(strategy: SupervisedTemplate) -> int:
        """Return the bytes of the kept rows."""
        return kept_row_bytes(find_plugin(strategy, ReplayPlugin))

    def task_bytes(self, shape: StreamShape) -> float:
        """Return the bytes of the kept rows."""
        return shared_row_bytes(shape, self.mem_size)
