"""The bytes of tensors as they come and go.

Every operation of torch inside the block passes through the ledger: what it makes is added, and
subtracted when the last tensor on the same storage is gone. The highest sum is the peak. Real
tensors and hollow ones (`cl_graft.experiments.memory_estimate.weightless_model`) count alike; what
an operator needs inside itself is not seen.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["Ledger"]

_READ = torch.ops.aten._local_scalar_dense.default


class Ledger(TorchDispatchMode):
    """Count the bytes of the tensors that are made inside a `with` block.

    A hollow tensor that is read as a number is read as 1: a loss is finite, a condition holds.

    Args:
        known: Tensors that count nothing, such as those of the model.

    Attributes:
        now: Bytes that live.
        peak: The most that lived at once.
    """

    def __init__(self, known: Iterable[Tensor] = ()) -> None:
        super().__init__()
        self.now = 0
        self.peak = 0
        self._bytes: dict[int, int] = {}
        self._known = [tensor.untyped_storage() for tensor in known]
        for storage in self._known:
            self._bytes[storage._cdata] = 0

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run an operation and enter what it made."""
        if func is _READ and isinstance(args[0], FakeTensor):
            return 1.0 if args[0].is_floating_point() else 1
        out = func(*args, **(kwargs or {}))
        for leaf in pytree.tree_leaves(out):
            if isinstance(leaf, Tensor) and leaf.layout == torch.strided:
                self._enter(leaf)
        return out

    def _enter(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._bytes:
            return
        self._bytes[key] = storage.nbytes()
        self.now += self._bytes[key]
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._leave, key)

    def _leave(self, key: int) -> None:
        self.now -= self._bytes.pop(key, 0)
