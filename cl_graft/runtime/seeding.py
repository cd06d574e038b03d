"""Seeds and generators as functions of (seed, task, phase, step).

Every random choice of a run is such a function and never one of how often a global generator was
used before. Threads of a process share the global generators: `seeded` blocks and whole runs wait
for each other, and a loop that seeds by itself checks that no other thread did.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

logger = logging.getLogger(__name__)

_GENERATORS = threading.RLock()
_HELD = threading.local()  # `depth` is the number of `lock_generators` blocks of a thread
_last_thread = 0  # the one that seeded torch's global generators last


def derive(seed: int, *keys: str | int) -> int:
    """Derive a seed in [0, 2**63) from `seed` and `keys`, the same in every process."""
    text = "\x1f".join([str(int(seed)), *(f"{type(key).__name__}:{key}" for key in keys)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def generator(seed: int, *keys: str | int) -> torch.Generator:
    """Make a CPU generator for the choice named by `keys`."""
    return torch.Generator().manual_seed(derive(seed, *keys))


def permutation(n: int, seed: int, *keys: str | int) -> Tensor:
    """Draw a permutation of 0 .. n-1, int64 of shape (n,)."""
    return torch.randperm(n, generator=generator(seed, *keys))


def global_generators() -> list[torch.Generator]:
    """Return torch's global generators: the CPU's and those of every device in use."""
    generators = [torch.default_generator]
    for device in (torch.cuda, torch.xpu):
        if device.is_initialized():
            generators += device.default_generators
    if torch.backends.mps.is_available():
        generators.append(torch.mps._get_default_mps_generator())
    return generators


def save_generators() -> Callable[[], None]:
    """Return a function that puts torch's global generators back to their present states."""
    states = [(each, each.get_state()) for each in global_generators()]

    def put_back() -> None:
        for each, state in states:
            each.set_state(state)

    return put_back


def seed_generators(seed: int) -> None:
    """Seed torch's global generators, as `torch.manual_seed` does.

    Where no accelerator is, torch's function writes down the call stack for each kind of
    accelerator, which takes as long as a training step of a tiny model.
    """
    claim_generators()
    if torch.accelerator.is_available():
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)


def claim_generators() -> None:
    """Draw from torch's global generators as they are; `check_generators` remembers the thread."""
    global _last_thread
    _last_thread = threading.get_ident()


def check_generators() -> None:
    """Refuse to train on where another thread seeded or claimed the generators since.

    Draws of one may have gone to the other, so that is refused, too.
    """
    global _last_thread
    if _last_thread != threading.get_ident():
        _last_thread = 0
        raise RuntimeError(
            "another thread of this process trains at the same time, and both draw from torch's "
            "global random generator, so neither would learn what its seed says; train one after "
            "the other, or in a process each (cg.run, cg.compare and add wait by themselves)"
        )


@contextmanager
def lock_generators() -> Iterator[None]:
    """Be the only thread that seeds torch's global generators, for a `with` block or a function.

    Other threads that want the lock wait. Blocks of one thread may be nested.
    """
    if not _GENERATORS.acquire(blocking=False):
        logger.info("waiting for the training of another thread of this process")
        _GENERATORS.acquire()
    _HELD.depth = getattr(_HELD, "depth", 0) + 1
    try:
        yield
    finally:
        _HELD.depth -= 1
        _GENERATORS.release()


@contextmanager
def leave_generators() -> Iterator[None]:
    """Let other threads have the generators for a `with` block; their states come back after it.

    A thread that waits for a model's lock does so: the one that holds the model may wait for the
    generators.
    """
    global _last_thread
    depth, last = getattr(_HELD, "depth", 0), _last_thread
    if not depth:
        yield
        return
    put_back = save_generators()
    for _ in range(depth):
        _GENERATORS.release()
    try:
        yield
    finally:
        for _ in range(depth):
            _GENERATORS.acquire()
        put_back()
        _last_thread = last


@contextmanager
def seeded(seed: int, *keys: str | int) -> Iterator[None]:
    """Seed torch's global generators for a `with` block and restore them afterwards.

    So the draws of dropout, which knows no others, become a function of the step.

    Examples:
        >>> with seeded(0, "dropout", 1):
        ...     first = torch.rand(2)
        >>> with seeded(0, "dropout", 1):
        ...     second = torch.rand(2)
        >>> torch.equal(first, second)
        True
    """
    with lock_generators():
        put_back = save_generators()
        try:
            seed_generators(derive(seed, *keys))
            yield
        finally:
            put_back()
