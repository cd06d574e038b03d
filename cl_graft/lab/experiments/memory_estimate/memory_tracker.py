"""A tracker of the bytes of living tensors, and of the most that lived at once.

It knows nothing of models, and counts real and fake tensors alike. The work space inside an
operator is not seen.
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

__all__ = ["MemoryTracker"]

_READ = torch.ops.aten._local_scalar_dense.default


class MemoryTracker(TorchDispatchMode):
    """Count the bytes of the tensors that operations make inside a `with` block.

    A storage counts once, until the last tensor on it is gone. A fake tensor that is read as a
    number is read as 1: a loss is finite, a condition holds.

    Args:
        known: Tensors that count nothing, such as those of the model.

    Attributes:
        now: Bytes that live now.
        peak: Largest number of bytes that lived at once.
    """

    def __init__(self, known: Iterable[Tensor] = ()) -> None:
        super().__init__()
        self.now = 0
        self.peak = 0
        self._known = [tensor.untyped_storage() for tensor in known]
        self._bytes = {storage._cdata: 0 for storage in self._known}

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run an operation and count what it made."""
        if func is _READ and isinstance(args[0], FakeTensor):
            return 1.0 if args[0].is_floating_point() else 1
        out = func(*args, **(kwargs or {}))
        for leaf in pytree.tree_leaves(out):
            if isinstance(leaf, Tensor) and leaf.layout == torch.strided:
                self._count(leaf)
        return out

    def _count(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._bytes:
            return
        self._bytes[key] = storage.nbytes()
        self.now += self._bytes[key]
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._forget, key)

    def _forget(self, key: int) -> None:
        self.now -= self._bytes.pop(key, 0)
