"""States below the blocks that train: computed once a row, and put in place of the lower blocks.

Where only upper blocks train, what enters the lowest of them is constant for a row, as long as the
weights below are. A row is computed alone, without padding and in eval mode, so its states are a
function of the row and the weights: not of the batch it stands in, and not of whether they were
stored. docs/decisions/0043-states-below-a-region.md has the figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from cl_graft.errors import InputError
from cl_graft.grafts.base_check import TensorVersions
from cl_graft.grafts.blocks import BlockStack, Layers, find_block_stack
from cl_graft.grafts.hashing import hash_tensors
from cl_graft.grafts.model_state import preserve_modes
from cl_graft.models.graftable import graftable_parameters
from cl_graft.runtime.forward_override import override_forward
from cl_graft.runtime.row_store import RowStore
from cl_graft.runtime.tensor_names import tensors_by_name

__all__ = ["LowerStates", "find_lower_states", "freeze_below"]

Run = Callable[[Tensor, Tensor], object]
"""Runs the backbone on token ids and segments, (n, L) each."""


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
    before = _ACTIVE.get(model)
    kept = _KEPT.get(model)
    if kept is None or (kept.first, kept.memory) != (first, memory):
        kept = _KEPT[model] = LowerStates(model, stack, first=first, memory=memory)
    if kept is not before:
        kept.begin()
    _ACTIVE[model] = kept
    try:
        yield
    finally:
        if before is None:
            del _ACTIVE[model]
        else:
            _ACTIVE[model] = before


def find_lower_states(model: nn.Module) -> LowerStates | None:
    """Return what stands in place of a model's lower blocks, in a block of `freeze_below`.

    A graph that torch compiles has the blocks themselves.
    """
    if not _ACTIVE or torch.compiler.is_compiling():
        return None
    return _ACTIVE.get(model)


class LowerStates:
    """The states that enter an upper block of a model, by row.

    Args:
        model: The model.
        stack: Its list of blocks.
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
        blocks = stack.blocks(model)
        self._lower, self._top = blocks[:first], blocks[-1]
        above = [f"{stack.path}.{number}" for number in range(first, stack.size)]
        self._versions = TensorVersions(model, exclude=["heads", *above])
        self._above = tuple(f"{path}." for path in ("heads", *above))
        self._sha256 = ""
        self._store = None if memory is None else RowStore(memory)
        self._kind: type | None = None
        self._checked = False

    def begin(self) -> None:
        """Let what is stored give way to what comes, where memory is short."""
        if self._store is not None:
            self._store.begin()

    def run(self, model: nn.Module, ids: Tensor, segments: Tensor, run: Run) -> Any:
        """Run the backbone with stored states in place of its lower blocks.

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
        states = self._states(model, ids, segments, run)
        if not self._checked:
            self._check_row(model, ids[:1], segments[:1], states[0], run)
            self._checked = True
        with self._in_place(states):
            return run(ids, segments)

    def _states(self, model: nn.Module, ids: Tensor, segments: Tensor, run: Run) -> Tensor:
        """Return the states of a batch, (n, L, width), padded with those of a row's last token."""
        lengths, rows = _lengths(segments), torch.stack((ids, segments), 1).to("cpu", torch.int32)
        keys = [row[:, :end].numpy().tobytes() for row, end in zip(rows, lengths, strict=True)]
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
                    found[key] = self._compute(ids[row], segments[row], run)
                    if self._store is not None:
                        self._store.put(key, found[key])
        return _pad([found[key] for key in keys], ids)

    def _compute(self, ids: Tensor, segments: Tensor, run: Run) -> Tensor:
        """Return the states of a row, (length, width)."""
        self.computed += 1
        output = _run_to(self._lower[-1], ids, segments, run)
        self._kind = type(output)
        return _states_of(output)[0]

    @contextmanager
    def _in_place(self, states: Tensor) -> Iterator[None]:
        """Let the lower blocks return the states, whatever they are called with."""

        def give(*_: object, **__: object) -> Any:
            return states if self._kind is None or issubclass(self._kind, Tensor) else (states,)

        with ExitStack() as block:
            for module in self._lower:
                block.enter_context(override_forward(module, give))
            yield

    def _check_row(
        self, model: nn.Module, ids: Tensor, segments: Tensor, states: Tensor, run: Run
    ) -> None:
        """Make sure that a row is answered alike with its states put in place of lower blocks."""
        length = _lengths(segments)[0]
        ids, segments, states = ids[:, :length], segments[:, :length], states[None, :length]
        with torch.no_grad(), preserve_modes(model):
            model.eval()
            plain = _states_of(_run_to(self._top, ids, segments, run))
            with self._in_place(states):
                other = _states_of(_run_to(self._top, ids, segments, run))
        if not torch.equal(plain, other):
            raise InputError(
                "the upper blocks of this model look at more than the states below them, so what "
                "lies below cannot be taken for constant; use layers='all'"
            )

    def _check_weights(self, model: nn.Module) -> None:
        """Forget what was computed with other weights than those that lie below now."""
        if self._sha256 and not self._versions.changed():
            return
        if self._versions.moved():
            self._versions = TensorVersions(model, exclude=self._versions.exclude)
        self._versions.note()
        below = {
            name: tensor
            for name, tensor in tensors_by_name(model).items()
            if not name.startswith(self._above)
        }
        sha256 = hash_tensors(below)
        if sha256 != self._sha256 and self._store is not None:
            self._store.clear()
        self._sha256 = sha256


class _Reached(Exception):
    """The output of the last lower block."""

    def __init__(self, output: Any) -> None:
        super().__init__()
        self.output = output


def _run_to(block: nn.Module, ids: Tensor, segments: Tensor, run: Run) -> Any:
    """Run a backbone up to a block, and return what that block returns."""

    def stop(_: nn.Module, __: object, output: Any) -> None:
        raise _Reached(output)

    hook = block.register_forward_hook(stop)
    try:
        run(ids, segments)
    except _Reached as reached:
        return reached.output
    finally:
        hook.remove()
    raise InputError("the model does not call its blocks one by one; use layers='all'")


def _states_of(output: Any) -> Tensor:
    """Return the states, (n, L, width), in what a block returns."""
    return output if isinstance(output, Tensor) else output[0]


_ACTIVE: WeakKeyDictionary[nn.Module, LowerStates] = WeakKeyDictionary()
"""What stands in place of lower blocks now, by model; copies of a model have nothing here."""

_KEPT: WeakKeyDictionary[nn.Module, LowerStates] = WeakKeyDictionary()
"""What was stored last, by model, also between blocks of `freeze_below`."""


def _lengths(segments: Tensor) -> list[int]:
    """Return the columns of each row up to its last token, at least 1."""
    columns = torch.arange(1, segments.shape[1] + 1, device=segments.device)
    return ((segments != 0) * columns).amax(1).clamp(min=1).tolist()


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
