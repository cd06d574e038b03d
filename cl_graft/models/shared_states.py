"""States that several tasks share when they are asked of the same texts.

Where entries of a bank touch upper blocks alone, all of them see the same states below. Rows of a
mixed batch that hold the same text are computed once up to there. A batch of one task that was
asked of another task before goes on from the states that it had then, which are those it would have
again, bit for bit: the batch is the same, and so are the weights below.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from cl_graft.errors import InputError
from cl_graft.grafts.bank import GraftBank
from cl_graft.grafts.blocks import BlockStack, find_block_stack
from cl_graft.models.graftable import graftable_parameters
from cl_graft.models.lower_blocks import LowerBlocks, Run, put_in_place, row_keys, row_lengths

__all__ = ["share_below"]

_MEMORY = 256 * 2**20
"""Bytes of states of earlier batches."""


@contextmanager
def share_below(model: nn.Module, bank: GraftBank, *, rows: bool) -> Iterator[None]:
    """Share the states below all entries of a bank between its tasks, for a `with` block.

    Nothing is shared where an entry touches the first block, or where the model is no single list
    of blocks, is in train mode or computes gradients.

    Args:
        model: A `TaskModel` that carries answers of the bank.
        bank: The bank.
        rows: Whether rows of a batch that are alike are computed once, which may change last bits;
            otherwise batches are that are alike.
    """
    shared = _SHARED.get(model)
    if shared is None:
        shared = _SHARED[model] = _SharedStates(model)
    if not shared.begin(model, bank, rows=rows):
        yield
        return
    with put_in_place(model, shared):
        yield


class _SharedStates:
    """The states of the last batches below a block of a model."""

    def __init__(self, model: nn.Module) -> None:
        self._stack = _find_stack(model)
        self._bank: GraftBank | None = None
        self._read = 0
        self._first = 0
        self._rows = False
        self._lower: LowerBlocks | None = None
        self._is_allowed: bool | None = None
        self._kept: OrderedDict[object, Tensor] = OrderedDict()

    def begin(self, model: nn.Module, bank: GraftBank, *, rows: bool) -> bool:
        """Share what lies below all entries from now on; return whether there is anything."""
        self._rows = rows
        read = sum(entry.is_read for entry in bank.entries)
        if bank is not self._bank or read != self._read:
            self._bank, self._read = bank, read
            first = 0 if self._stack is None else _lowest_block(bank, self._stack)
            if first != self._first:
                self._kept.clear()
                self._is_allowed = None
                self._first = first
                self._lower = LowerBlocks(model, self._stack, first) if self._stack else None
        return self._first > 0

    def run(self, model: nn.Module, ids: Tensor, segments: Tensor, run: Run) -> Any:
        """Run the backbone, its lower blocks once for rows or batches that are alike."""
        lower = self._lower
        if lower is None or self._is_allowed is False or torch.is_grad_enabled() or model.training:
            return run(ids, segments)
        if lower.changed(model):
            self._kept.clear()
        keys = row_keys(ids, segments, row_lengths(segments))
        alike = dict.fromkeys(keys)
        if self._rows and len(alike) < len(keys):
            places = {key: keys.index(key) for key in alike}
            some = torch.tensor(list(places.values()), device=ids.device)
            states = self._find(tuple(alike), ids[some], segments[some], run, lower)
            numbers = {key: number for number, key in enumerate(alike)}
            which = torch.tensor([numbers[key] for key in keys], device=ids.device)
            if self._is_allowed is None:
                whole = lower.compute(ids, segments, run)  # of the batch itself, for equal bits
                self._is_allowed = lower.allow(model, ids, segments, whole, run)
            return self._go_on(model, states[which], ids, segments, run, lower)
        batch = (ids.shape[1], *keys)
        states = self._kept.get(batch)
        if states is not None:
            return self._go_on(model, states, ids, segments, run, lower)
        output, states = lower.observe(ids, segments, run)
        if states is not None:
            self._keep(batch, states)
        return output

    def _find(
        self, keys: tuple[bytes, ...], ids: Tensor, segments: Tensor, run: Run, lower: LowerBlocks
    ) -> Tensor:
        """Return the states of a batch, from before or computed."""
        batch = (ids.shape[1], *keys)
        states = self._kept.get(batch)
        if states is None:
            states = lower.compute(ids, segments, run)
            self._keep(batch, states)
        return states

    def _go_on(
        self,
        model: nn.Module,
        states: Tensor,
        ids: Tensor,
        segments: Tensor,
        run: Run,
        lower: LowerBlocks,
    ) -> Any:
        """Run the upper blocks on states, if the model allows it."""
        if self._is_allowed is None:
            self._is_allowed = lower.allow(model, ids, segments, states, run)
        if not self._is_allowed:
            return run(ids, segments)
        with lower.in_place(states):
            return run(ids, segments)

    def _keep(self, batch: object, states: Tensor) -> None:
        self._kept[batch] = states
        while len(self._kept) > 1 and sum(s.nbytes for s in self._kept.values()) > _MEMORY:
            self._kept.popitem(last=False)


def _find_stack(model: nn.Module) -> BlockStack | None:
    try:
        return find_block_stack(model, graftable_parameters(model))
    except (InputError, ValueError):
        return None


def _lowest_block(bank: GraftBank, stack: BlockStack) -> int:
    """Return the lowest block that an entry touches, of those that were read."""
    starts, touched = torch.tensor(bank.layout.starts), set[int]()
    for entry in filter(lambda entry: entry.is_read, bank.entries):
        counts = torch.searchsorted(entry.owned.region.index, starts).diff()
        touched |= {*counts.nonzero().flatten().tolist()}
    return min((stack.find_number(bank.layout.names[place]) for place in touched), default=0)


_SHARED: WeakKeyDictionary[nn.Module, _SharedStates] = WeakKeyDictionary()
"""Shared states, by model."""
