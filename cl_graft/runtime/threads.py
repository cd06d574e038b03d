"""Locks between the threads of a process: one for each model, and one for torch's generators.

Whatever writes into a model's weights and computes with them holds the model's lock in between, so
that several threads can use one model. All threads share torch's global generators, so training
whose draws must not change holds theirs. A forked process computes with one thread.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from threading import Lock, RLock
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import nn

__all__ = ["hold_model", "lock_generators", "lock_model"]

logger = logging.getLogger(__name__)

_P = ParamSpec("_P")
_R = TypeVar("_R")


class _HasModel(Protocol):
    @property
    def model(self) -> nn.Module: ...


_Owner = TypeVar("_Owner", bound=_HasModel)

_MODELS: WeakKeyDictionary[nn.Module, Any] = WeakKeyDictionary()
"""Locks by model: a copy of a model has its own, and a model can be copied and pickled."""
_MODELS_LOCK = Lock()
_GENERATORS = RLock()


if hasattr(os, "register_at_fork"):
    # The threads of torch's parent process are not in a forked one, which would wait for them for
    # ever in its first large product; PyTorch's own loaders do the same in theirs.
    os.register_at_fork(after_in_child=lambda: torch.set_num_threads(1))


@contextmanager
def lock_model(model: nn.Module) -> Iterator[None]:
    """Be the only thread that writes into a model or computes with it, for a `with` block.

    Other threads that want its lock wait. Blocks of one thread may be nested.
    """
    with _MODELS_LOCK:
        lock = _MODELS.setdefault(model, RLock())
    with lock:
        yield


def hold_model(
    method: Callable[Concatenate[_Owner, _P], _R],
) -> Callable[Concatenate[_Owner, _P], _R]:
    """Make a method hold the lock of its object's `model` while it runs."""

    @wraps(method)
    def run(self: _Owner, *args: _P.args, **settings: _P.kwargs) -> _R:
        with lock_model(self.model):
            return method(self, *args, **settings)

    return run


@contextmanager
def lock_generators() -> Iterator[None]:
    """Be the only thread that seeds torch's global generators, for a `with` block.

    Two runs in two threads would draw from each other's. Other threads that want the lock wait.
    Blocks of one thread may be nested. It also decorates a function.
    """
    if not _GENERATORS.acquire(blocking=False):
        logger.info("waiting for the training of another thread of this process")
        _GENERATORS.acquire()
    try:
        yield
    finally:
        _GENERATORS.release()
