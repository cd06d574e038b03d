"""States below the blocks that train: computed once a row, and put in place of the lower blocks.

Where only upper blocks train, what enters the lowest of them is constant for a row, as long as the
weights below are. A row is computed alone, without padding and in eval mode, so its states are a
function of the row and the weights: not of the batch it stands in, and not of whether they were
stored. docs/decisions/0044-states-below-a-region.md has the figures.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from cl_graft.errors import InputError
from cl_graft.grafts.blocks import BlockStack, Layers, find_block_stack
from cl_graft.grafts.model_state import preserve_modes
from cl_graft.models.graftable import graftable_parameters
from cl_graft.models.lower_blocks import (
    LowerBlocks,
    Run,
    put_in_place,
    row_keys,
    row_lengths,
)
from cl_graft.runtime.row_store import RowStore

__all__ = ["LowerStates", "freeze_below"]


@contextmanager
def freeze_below(model: nn.Module, layers: Layers, *, memory: int | None) -> Iterator[None]:
    """Take the states below the upper blocks of a `TaskModel` for constant, for a `with` block.

    The blocks below compute each row alone, without padding, dropout and gradients. Copies of the
    model do not take part. Weights below may change from one `with` block to the next, or inside
    one: what was stored of others is forgotten.

    Args:
        model: The model.
        layers: The upper blocks; "all" does nothing.
        memory: Bytes of memory for states, past which they go to temporary files; None stores none.

    Raises:
        InputError: If the model has not as many blocks, or not one list of blocks.
    """
    stack = None if layers == "all" else find_block_stack(model, graftable_parameters(model))
    first = 0 if stack is None else stack.first(layers)
    if stack is None or not first:
        yield
        return
    kept = _KEPT.get(model)
    if kept is None or (kept.first, kept.memory) != (first, memory):
        kept = _KEPT[model] = LowerStates(model, stack, first=first, memory=memory)
    with put_in_place(model, kept) as is_new:
        if is_new:
            kept.begin()
        yield


class LowerStates:
    """The states that enter an upper block of a model, by row.

    Args:
        model: The model.
        stack: List of the model's blocks.
        first: The lowest block that is not frozen, from 1.
        memory: Bytes of memory for them; None stores none.

    Attributes:
        first: The lowest block that is not frozen.
        memory: Bytes of memory.
        computed: Rows that were computed so far.
    """

    def __init__(
        self, model: nn.Module, stack: BlockStack, *, first: int, memory: int | None
    ) -> None:
        self.first = first
        self.memory = memory
        self.computed = 0
        self._lower = LowerBlocks(model, stack, first)
        self._identity: tuple[object, ...] = ()
        self._store = None if memory is None else RowStore(memory)
        self._is_allowed = False

    def begin(self) -> None:
        """Let what is stored give way to what comes, where memory is short."""
        if self._store is not None:
            self._store.begin()

    def run(self, model: nn.Module, ids: Tensor, segments: Tensor, run: Run) -> Any:
        """Run the backbone with known states in place of its lower blocks.

        Args:
            model: The model.
            ids: Token ids, (n, L).
            segments: 0 for padding on the right, of shape (n, L).
            run: Runs the backbone on the batch, and on single rows.

        Returns:
            What `run` returns.

        Raises:
            InputError: If the model's upper blocks look at more than the states below them.
        """
        self._check_weights(model)
        lengths = row_lengths(segments)
        rows = self._find_rows(model, ids, segments, lengths, run)
        if not self._is_allowed:
            row = slice(1), slice(lengths[0])
            if not self._lower.allow(model, ids[row], segments[row], rows[0][None], run):
                raise InputError(
                    "the upper blocks of this model look at more than the states below them, so "
                    "what lies below cannot be taken for constant; use layers='all'"
                )
            self._is_allowed = True
        with self._lower.in_place(_pad(rows, ids)):
            return run(ids, segments)

    def _find_rows(
        self, model: nn.Module, ids: Tensor, segments: Tensor, lengths: list[int], run: Run
    ) -> list[Tensor]:
        """Return the states of each row of a batch, (length, width)."""
        keys = row_keys(ids, segments, lengths)
        found: dict[bytes, Tensor] = {}
        missing: dict[bytes, int] = {}
        for n, key in enumerate(keys):
            states = None if self._store is None else self._store.get(key)
            if states is None:
                missing[key] = n
            else:
                found[key] = states
        if missing:
            with torch.no_grad(), preserve_modes(model):
                model.eval()
                for key, n in missing.items():
                    row = slice(n, n + 1), slice(lengths[n])
                    found[key] = self._lower.compute(ids[row], segments[row], run)[0]
                    self.computed += 1
                    if self._store is not None:
                        self._store.put(key, found[key])
        return [found[key] for key in keys]

    def _check_weights(self, model: nn.Module) -> None:
        """Forget what was computed with other weights or precision than there are below now."""
        if not self._lower.changed(model) and self._identity:
            return
        identity = self._lower.identity(model)
        if identity != self._identity and self._store is not None:
            self._store.clear()
        self._identity = identity


def _pad(rows: list[Tensor], like: Tensor) -> Tensor:
    """Stack states of rows, each (length, width), to the columns of a batch, (n, L).

    Padding repeats the last token, so that it is as finite as a text.
    """
    count, length = like.shape
    out = rows[0].new_empty(count, length, rows[0].shape[-1], device=like.device)
    for n, states in enumerate(rows):
        out[n, : len(states)] = states
        if len(states) < length:
            out[n, len(states) :] = states[-1]
    return out


_KEPT: WeakKeyDictionary[nn.Module, LowerStates] = WeakKeyDictionary()
"""States stored last, by model, also between blocks of `freeze_below`."""
