"""Locks of models between the threads of a process.

Whatever writes into a model's weights and computes with them holds the model's lock in between. A
forked process computes with one thread.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from threading import Lock, RLock
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

import torch
from torch import nn

from cl_graft.runtime.seeding import leave_generators

_Method = TypeVar("_Method", bound=Callable[..., Any])

# Locks by model: a copy of a model has its own, and a model can be copied and pickled.
_MODELS: WeakKeyDictionary[nn.Module, Any] = WeakKeyDictionary()
_MODELS_LOCK = Lock()

if hasattr(os, "register_at_fork"):
    # The threads of torch's parent process are not in a forked one, which would wait for them for
    # ever in its first large product; PyTorch's own loaders do the same in theirs.
    os.register_at_fork(after_in_child=lambda: torch.set_num_threads(1))


@contextmanager
def lock_model(model: nn.Module) -> Iterator[None]:
    """Be the only thread that uses a model, for a `with` block; one thread may nest blocks."""
    with _MODELS_LOCK:
        lock = _MODELS.setdefault(model, RLock())
    if not lock.acquire(blocking=False):
        with leave_generators():
            lock.acquire()
    try:
        yield
    finally:
        lock.release()


def hold_model(method: _Method) -> _Method:
    """Make a method hold the lock of its object's `model` while it runs."""

    @wraps(method)
    def run(self: Any, *args: Any, **settings: Any) -> Any:
        with lock_model(self.model):
            return method(self, *args, **settings)

    return cast(_Method, run)
