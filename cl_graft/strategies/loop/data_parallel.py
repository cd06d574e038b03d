"""SplitBatches: one training on several processes, each with a part of every batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from avalanche.core import SupervisedPlugin
from torch import Tensor

from cl_graft.grafts.hashing import hash_tensors
from cl_graft.runtime.seeding import seed_generators
from cl_graft.strategies.strategy import Strategy


class SplitBatches(SupervisedPlugin, supports_distributed=True):
    """Compute each training batch on all processes of a `torch.distributed` group.

    Runs at: before_training_exp, before_forward, before_backward, before_update, after_update. The
    processes add up the gradients of the optimiser's parameters, in one message a step. Under
    grafting these are the region and the head, a few kilobytes, where distributed training of a
    whole model sends gradients of all its weights. Every process then takes the same step, so their
    models stay equal to the bit.

    Start the script with ``torchrun --nproc-per-node N``, call
    ``torch.distributed.init_process_group``, and give every process the same model, data and seeds.
    Where the loader gives all processes the same batch (`TextBatches`), each computes its share of
    the rows, and the training is that of one process up to float rounding, if nothing is drawn
    (dropout) or computed over rows (BatchNorm). Where Avalanche's loader gives each process rows of
    its own, `train_mb_size` counts the rows of one process, and a step takes the rows of all.
    Each process draws its own dropout.

    Every process computes by itself what is outside of the strategy's loop (grafting's dense run
    and localizer), with the same result.

    Give it before other plugins, `MicroBatches` among them. After a step the strategy holds the
    whole batch, its outputs and its mean loss, where the processes had the same batch. Without a
    group, or with a group of one, it does nothing.

    Attributes:
        bytes_a_step: Bytes that a process sent in the last step.
    """

    def __init__(self) -> None:
        super().__init__()
        self.bytes_a_step = 0
        self._alike: bool | None = None
        self._whole: list[Tensor] | None = None
        self._part = slice(0)
        self._share = 1.0
        self._outputs = torch.empty(0)

    def before_training_exp(self, strategy: Strategy, **kwargs: Any) -> None:
        """Find out anew whether the loader gives all processes the same batch."""
        self._alike = None

    def before_forward(self, strategy: Strategy, **kwargs: Any) -> None:
        """Keep the rows of this process."""
        self._whole = None
        if _processes() == 1:
            return
        whole = list(strategy.mbatch)
        rows = len(whole[0])
        if self._alike is None:
            self._alike = _alike(whole)
        if not self._alike:
            count = torch.tensor(float(rows), device=whole[0].device)
            dist.all_reduce(count)
            self._share = rows / float(count)
        else:
            rank = dist.get_rank()
            first, last = (rows * place // _processes() for place in (rank, rank + 1))
            self._share = (last - first) / rows
            # A process without a row computes one with weight 0.
            first = min(first, rows - 1)
            self._part = slice(first, max(last, first + 1))
            strategy.mbatch = [tensor[self._part] for tensor in whole]
            self._whole = whole
        # With one seed, the parts would draw the same dropout.
        seed_generators(torch.initial_seed() + dist.get_rank())

    def before_backward(self, strategy: Strategy, **kwargs: Any) -> None:
        """Keep the outputs, whose loss may be changed from here on."""
        self._outputs = strategy.mb_output.detach()

    def before_update(self, strategy: Strategy, **kwargs: Any) -> None:
        """Sum gradients, outputs and the loss up over all processes."""
        if _processes() == 1:
            return
        groups = strategy.optimizer.param_groups
        held = [p for group in groups for p in group["params"] if p.requires_grad]
        # A process whose gradients overflowed has none: then no process takes the step.
        known = torch.tensor([float(p.grad is not None) for p in held])
        share = self._share
        parts = [known.to(held[0].device), strategy.loss.detach() * share]
        parts += [torch.zeros_like(p) if p.grad is None else p.grad * share for p in held]
        if self._whole is not None:
            outputs = self._outputs
            everyone = outputs.new_zeros(len(self._whole[0]), *outputs.shape[1:])
            everyone[self._part] = outputs * float(share > 0)
            parts.append(everyone)
        summed, self.bytes_a_step = _sum_over_processes(parts)
        known, strategy.loss = summed[0], summed[1].reshape(())
        for place, parameter in enumerate(held):
            everywhere = float(known[place]) == _processes()
            parameter.grad = summed[2 + place] if everywhere else None
        if self._whole is not None:
            self._outputs = summed[-1]

    def after_update(self, strategy: Strategy, **kwargs: Any) -> None:
        """Give the strategy its whole batch back."""
        if self._whole is not None:
            strategy.mbatch, self._whole = self._whole, None
            strategy.mb_output = self._outputs


def _sum_over_processes(parts: Sequence[Tensor]) -> tuple[list[Tensor], int]:
    """Sum tensors up over all processes in one message, and return its size in bytes, too."""
    message = torch.cat([part.reshape(-1).float() for part in parts])
    dist.all_reduce(message)
    pieces = message.split([part.numel() for part in parts])
    summed = [
        piece.view(part.shape).to(part.dtype) for piece, part in zip(pieces, parts, strict=True)
    ]
    return summed, message.nbytes


def _alike(batch: Sequence[Tensor]) -> bool:
    """Tell whether all processes have the same batch."""
    digest = torch.tensor(bytearray.fromhex(hash_tensors({"batch": batch[0]})[:32]))
    mine = torch.cat([digest.float(), -digest.float()]).to(batch[0].device)
    dist.all_reduce(mine, op=dist.ReduceOp.MAX)
    most, least = mine.chunk(2)
    return bool(torch.equal(most, -least))


def _processes() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
