"""ER-ACE: replay whose loss on new rows sees only their classes."""

from __future__ import annotations

from avalanche.training.supervised.er_ace import ER_ACE
from avalanche.training.templates import SupervisedTemplate

from cl_graft.strategies import StrategyInputs, count_stored, register_strategy
from cl_graft.strategies.method import StreamShape
from cl_graft.strategies.methods.rehearsal.row_buffers import (
    batch_setting,
    count_shared_row_bytes,
    memory_setting,
)

__all__ = ["ERACE"]


@register_strategy(
    "er_ace",
    family="rehearsal",
    source="Caccia et al., 2022, https://arxiv.org/abs/2104.05025; Avalanche's ER_ACE",
    adds="rows, `mem_size` in all",
    kinds="classification",
)
class ERACE:
    """Train on kept rows beside the new ones, whose loss sees their own classes alone."""

    mem_size: int = memory_setting()
    batch_size_mem: int = batch_setting()

    storage_bytes = count_stored(ER_ACE, "storage_policy.buffer")

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return Avalanche's `ER_ACE`."""
        return inputs.sgd_strategy(
            ER_ACE,
            whole_batches=True,
            mem_size=self.mem_size,
            batch_size_mem=self.batch_size_mem or inputs.first_schedule.batch_size,
        )

    def task_bytes(self, shape: StreamShape) -> float:
        """Return the bytes of the kept rows."""
        return count_shared_row_bytes(shape, self.mem_size)
