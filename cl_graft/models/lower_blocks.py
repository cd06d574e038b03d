"""The lower blocks of a model, and a way to put states that are known in their place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from cl_graft.errors import InputError
from cl_graft.grafts.base_check import TensorVersions
from cl_graft.grafts.blocks import BlockStack
from cl_graft.grafts.hashing import hash_tensors
from cl_graft.grafts.model_state import preserve_modes
from cl_graft.runtime.forward_override import override_forward
from cl_graft.runtime.tensor_names import tensors_by_name

__all__ = [
    "LowerBlocks",
    "LowerPart",
    "Run",
    "find_lower_part",
    "put_in_place",
    "row_keys",
    "row_lengths",
]

Run = Callable[[Tensor, Tensor], Any]
"""Runs the backbone of a model on token ids and segments, (n, L) each."""


class LowerPart(Protocol):
    """Something that computes in place of the lower part of a model."""

    def run(self, model: nn.Module, ids: Tensor, segments: Tensor, run: Run) -> Any:
        """Return what `run` returns of a batch."""
        ...


_ACTIVE: WeakKeyDictionary[nn.Module, LowerPart] = WeakKeyDictionary()
"""Parts that compute in place of lower ones, by model; copies of a model have nothing here."""


@contextmanager
def put_in_place(model: nn.Module, part: LowerPart) -> Iterator[bool]:
    """Let something compute in place of a model's lower part for a `with` block.

    Yields:
        Whether it did not do so before.
    """
    before = _ACTIVE.get(model)
    _ACTIVE[model] = part
    try:
        yield part is not before
    finally:
        if before is None:
            del _ACTIVE[model]
        else:
            _ACTIVE[model] = before


def find_lower_part(model: nn.Module) -> LowerPart | None:
    """Return what computes in place of a model's lower part now; None if its own blocks do.

    They do in a graph that torch compiles.
    """
    if not _ACTIVE or torch.compiler.is_compiling():
        return None
    return _ACTIVE.get(model)


class LowerBlocks:
    """The blocks of a model below one of them.

    Args:
        model: The model.
        stack: List of the model's blocks.
        first: Number of that block, from 1.
    """

    def __init__(self, model: nn.Module, stack: BlockStack, first: int) -> None:
        blocks = stack.blocks(model)
        self._lower, self._top = blocks[:first], blocks[-1]
        above = [f"{stack.path}.{number}" for number in range(first, stack.size)]
        self._outside = ("heads", *above)
        self._versions = TensorVersions(model, exclude=self._outside)
        self._precision = _find_precision(model)
        self._kind: type = Tensor

    def changed(self, model: nn.Module) -> bool:
        """Tell whether the weights below, or the precision, may be others than when last asked."""
        before, self._precision = self._precision, _find_precision(model)
        if not self._versions.changed():
            return self._precision != before
        if self._versions.moved():
            self._versions = TensorVersions(model, exclude=self._outside)
        self._versions.note()
        return True

    def identity(self, model: nn.Module) -> tuple[object, ...]:
        """Return what states follow from, beside the rows: a hash of weights, and the precision.

        The weights are all but those of the blocks above and the heads.
        """
        above = tuple(f"{path}." for path in self._outside)
        tensors = tensors_by_name(model)
        sha256 = hash_tensors({n: t for n, t in tensors.items() if not n.startswith(above)})
        return sha256, *_find_precision(model)

    def compute(self, ids: Tensor, segments: Tensor, run: Run) -> Tensor:
        """Run the lower blocks alone; return their states, (n, L, width)."""
        return self._read(_run_to(self._lower[-1], ids, segments, run))

    def observe(self, ids: Tensor, segments: Tensor, run: Run) -> tuple[Any, Tensor | None]:
        """Run the whole backbone; return its output and the states, None if there are not one."""
        seen: list[Any] = []
        hook = self._lower[-1].register_forward_hook(lambda _, __, output: seen.append(output))
        try:
            output = run(ids, segments)
        finally:
            hook.remove()
        return output, self._read(seen[0]) if len(seen) == 1 else None

    @contextmanager
    def in_place(self, states: Tensor) -> Iterator[None]:
        """Let the lower blocks return states, whatever they are called with."""

        def give(*_: object, **__: object) -> Any:
            return states if issubclass(self._kind, Tensor) else (states,)

        with ExitStack() as block:
            for module in self._lower:
                block.enter_context(override_forward(module, give))
            yield

    def allow(
        self, model: nn.Module, ids: Tensor, segments: Tensor, states: Tensor, run: Run
    ) -> bool:
        """Tell whether a batch is answered alike with its states put in place of these blocks.

        It is not where upper blocks look at more than the states below them.
        """
        with torch.no_grad(), preserve_modes(model):
            model.eval()
            plain = _select_states(_run_to(self._top, ids, segments, run))
            with self.in_place(states):
                other = _select_states(_run_to(self._top, ids, segments, run))
        return torch.equal(plain, other)

    def _read(self, output: Any) -> Tensor:
        self._kind = type(output)
        return _select_states(output).detach()


def _find_precision(model: nn.Module) -> tuple[object, ...]:
    """Return in which precision a model computes now, by its own setting and by autocast."""
    first = next(model.parameters(), None)
    kind = "cpu" if first is None else first.device.type
    outer = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
    return getattr(model, "precision", None), outer


def row_lengths(segments: Tensor) -> list[int]:
    """Return the columns of each row up to its last token, at least 1."""
    columns = torch.arange(1, segments.shape[1] + 1, device=segments.device)
    return ((segments != 0) * columns).amax(1).clamp(min=1).tolist()


def row_keys(ids: Tensor, segments: Tensor, lengths: list[int]) -> list[bytes]:
    """Return the content of each row up to its length."""
    rows = torch.stack((ids, segments), 1).to("cpu", torch.int32)
    return [row[:, :end].numpy().tobytes() for row, end in zip(rows, lengths, strict=True)]


class _Reached(Exception):
    """The output of the block at which a pass was to end."""

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


def _select_states(output: Any) -> Tensor:
    """Return the states, (n, L, width), in what a block returns."""
    return output if isinstance(output, Tensor) else output[0]
