"""MIR: replay of those kept rows whose loss the next step would raise most."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from avalanche.core import SupervisedPlugin
from avalanche.training.storage_policy import ClassBalancedBuffer
from avalanche.training.templates import SupervisedTemplate
from avalanche.training.utils import cycle
from torch import Tensor, nn
from torch.utils.data import DataLoader

from cl_graft.strategies import StrategyInputs, count_stored, register_strategy, setting
from cl_graft.strategies.method import StreamShape
from cl_graft.strategies.methods.rehearsal.row_buffers import count_shared_row_bytes, memory_setting

__all__ = ["MIR", "InterferedReplay"]


class InterferedReplay(SupervisedPlugin, supports_distributed=False):
    """Replay those of some kept rows whose loss the next step would raise most.

    Maximally Interfered Retrieval (Aljundi et al., 2019, https://arxiv.org/abs/1908.04742), as
    Avalanche's `MIRPlugin` but for parameters that are frozen and for classes that share their
    numbers across tasks.

    Runs at: before_backward, after_training_exp.

    Args:
        mem_size: Rows kept, of all tasks together, the same number of each class.
        subsample: Number of kept rows that are compared in a step.
        batch_size_mem: Number of these rows that are added to the step.
    """

    def __init__(self, *, mem_size: int, subsample: int, batch_size_mem: int) -> None:
        super().__init__()
        self.subsample = subsample
        self.batch_size_mem = batch_size_mem
        self.storage_policy = ClassBalancedBuffer(max_size=mem_size, adaptive_size=True)
        self._batches: Iterator[Any] | None = None

    def before_backward(self, strategy: Any, **kwargs: Any) -> None:
        """Add the mean loss of the rows with the largest interference."""
        if self._batches is None:
            return
        inputs, targets, labels = (part.to(strategy.device) for part in next(self._batches))
        harm = self._interference(strategy, inputs, targets, labels)
        worst = harm.topk(min(self.batch_size_mem, len(harm))).indices
        answers = strategy.model(inputs[worst], labels[worst])
        strategy.loss = strategy.loss + strategy._criterion(answers, targets[worst])

    def after_training_exp(self, strategy: Any, **kwargs: Any) -> None:
        """Keep rows of the experience."""
        self.storage_policy.post_adapt(strategy, strategy.experience)
        buffer: Any = self.storage_policy.buffer
        self._batches = cycle(DataLoader(buffer, batch_size=self.subsample, shuffle=True))

    @torch.no_grad()
    def _interference(
        self, strategy: Any, inputs: Tensor, targets: Tensor, labels: Tensor
    ) -> Tensor:
        """Return how much a plain step on the batch would raise the loss of each row, (n,)."""

        def losses() -> Tensor:
            answers = strategy.model(inputs, labels)
            return nn.functional.cross_entropy(answers, targets, reduction="none")

        before = losses()
        lr = strategy.optimizer.param_groups[0]["lr"]
        trained = [p for p in strategy.model.parameters() if p.requires_grad]
        with torch.enable_grad():
            gradients = torch.autograd.grad(
                strategy.loss, trained, retain_graph=True, allow_unused=True
            )
        kept = [p.detach().clone() for p in trained]
        # A write in place would spoil the graph that the step still needs.
        for parameter, gradient in zip(trained, gradients, strict=True):
            if gradient is not None:
                parameter.data = parameter.data - lr * gradient
        after = losses()
        for parameter, values in zip(trained, kept, strict=True):
            parameter.data = values
        return after - before


@register_strategy(
    "mir",
    family="rehearsal",
    source="Aljundi et al., 2019, https://arxiv.org/abs/1908.04742; after Avalanche's MIR",
    adds="rows, `mem_size` in all",
    kinds="classification",
)
class MIR:
    """Train on the kept rows that a step would harm most, beside the new ones."""

    mem_size: int = memory_setting()
    subsample: int = setting(50, "Kept rows looked at in a step.", least=1)
    batch_size_mem: int = setting(0, "Of these, rows added; 0: as many as new ones.", least=0)

    storage_bytes = count_stored(InterferedReplay, "storage_policy.buffer")

    def build(self, inputs: StrategyInputs) -> SupervisedTemplate:
        """Return Naive with `InterferedReplay`."""
        plugin = InterferedReplay(
            mem_size=self.mem_size,
            subsample=self.subsample,
            batch_size_mem=self.batch_size_mem or inputs.first_schedule.batch_size,
        )
        return inputs.naive(plugin, whole_batches=True)

    def task_bytes(self, shape: StreamShape) -> float:
        """Return the bytes of the kept rows."""
        return count_shared_row_bytes(shape, self.mem_size)
