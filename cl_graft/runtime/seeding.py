"""Seeds, generators and batch orders as functions of (seed, task, phase, step).

Every random choice of a run (data order, dropout, initial heads) is a function of
(seed, task, phase, step) and never of how often a global generator was used before. So a phase
can be taken up in its middle, and evaluation in between does not change a bit of training.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from cl_graft.runtime.batching import group_by_length

__all__ = [
    "BatchOrder",
    "derive",
    "generator",
    "global_generators",
    "permutation",
    "preserve_generators",
    "save_generators",
    "seeded",
]


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
    found = [torch.default_generator]
    for device in (torch.cuda, torch.xpu):
        if device.is_initialized():
            found += device.default_generators
    if torch.backends.mps.is_available():
        found.append(torch.mps._get_default_mps_generator())
    return found


def save_generators() -> Callable[[], None]:
    """Return a function that puts torch's global generators back to their states of now."""
    states = [(each, each.get_state()) for each in global_generators()]

    def put_back() -> None:
        for each, state in states:
            each.set_state(state)

    return put_back


@contextmanager
def preserve_generators() -> Iterator[None]:
    """Put torch's global generators back to their states after a `with` block."""
    put_back = save_generators()
    try:
        yield
    finally:
        put_back()


@contextmanager
def seeded(seed: int, *keys: str | int) -> Iterator[None]:
    """Seed torch's global generators for a `with` block and restore them afterwards.

    Dropout can only draw from the global generators; this is how its draws become a function of
    the step.
    """
    with preserve_generators():
        torch.manual_seed(derive(seed, *keys))
        yield


class BatchOrder:
    """The batches of a phase: which rows step t sees, for any t, without walking there.

    Rows are shuffled anew in every epoch. The last batch of an epoch is filled from the next
    epoch's shuffle, so all batches are equally large.

    Args:
        rows: How many there are.
        batch_size: Rows a batch.
        seed: Draws the shuffles, together with `keys`.
        *keys: Say whose batches these are.
        lengths: Of every row, (rows,): batches are made of rows of similar length. None leaves
            them as shuffled.
    """

    def __init__(
        self,
        rows: int,
        batch_size: int,
        seed: int,
        *keys: str | int,
        lengths: Tensor | None = None,
    ) -> None:
        if rows < 1 or batch_size < 1:
            raise ValueError(f"rows and batch_size must be at least 1, got {rows} and {batch_size}")
        self.rows = rows
        self.batch_size = batch_size
        self._seed = seed
        self._keys = keys
        self._lengths = lengths
        self._shuffles: dict[int, Tensor] = {}

    def __call__(self, step: int) -> list[int]:
        """Return the `batch_size` row numbers of batch `step` (from 0)."""
        first = step * self.batch_size
        places = range(first, first + self.batch_size)
        return [int(self._shuffle(place // self.rows)[place % self.rows]) for place in places]

    def _shuffle(self, epoch: int) -> Tensor:
        if epoch not in self._shuffles:
            self._shuffles = {e: s for e, s in self._shuffles.items() if e >= epoch - 1}
            self._shuffles[epoch] = self._drawn(epoch)
        return self._shuffles[epoch]

    def _drawn(self, epoch: int) -> Tensor:
        order = permutation(self.rows, self._seed, *self._keys, "epoch", epoch)
        if self._lengths is None:
            return order
        # The rows that fill the last batch of the epoch before stand first.
        begun = min(-epoch * self.rows % self.batch_size, self.rows)
        draws = generator(self._seed, *self._keys, "groups", epoch)
        rest = group_by_length(
            order[begun:], self._lengths, batch_size=self.batch_size, generator=draws
        )
        return torch.cat([order[:begun], rest])
