"""The rows of a task, batched by row number, so that any step's batch is known at once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import default_collate

from cl_graft.runtime.batching import text_lengths
from cl_graft.runtime.seeding import permutation


class Examples:
    """The rows of a dataset, batched by row number.

    Where `tensors` has inputs and targets of the whole dataset, a batch is indexed at once. `read`
    makes a batch of items; by default their first two parts are stacked.
    """

    def __init__(
        self,
        dataset: Any,
        rows: Sequence[int] | None = None,
        *,
        tensors: tuple[Tensor, Tensor] | None = None,
        read: Callable[[Sequence[Any]], tuple[Any, Tensor]] | None = None,
    ) -> None:
        self._dataset = dataset
        self._tensors = tensors
        self._read = read or _stack
        self.rows = list(range(len(dataset)) if rows is None else rows)

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def lengths(self) -> Tensor | None:
        """Tokens of every row, (n,), of encoded texts in memory; None of anything else."""
        lengths = text_lengths(self._tensors[0]) if self._tensors is not None else None
        return None if lengths is None else lengths[self.rows]

    def batch(self, places: Sequence[int]) -> tuple[Any, Tensor]:
        """Return the inputs and the targets of some rows; inputs have a method `to(device)`."""
        rows = [self.rows[number] for number in places]
        if self._tensors is not None:
            picked = torch.tensor(rows)
            return self._tensors[0][picked], self._tensors[1][picked]
        return self._read([self._dataset[row] for row in rows])

    def sort_by_length(self, places: Sequence[int]) -> list[int]:
        """Sort places by the length of their rows, longest first; without lengths keep them."""
        if self.lengths is None:
            return list(places)
        lengths = self.lengths.tolist()
        return sorted(places, key=lambda number: -lengths[number])

    def split(self, share: float, *, seed: int) -> tuple[Examples, Examples]:
        """Split off a share of the rows at random, at least one; returns (rest, part)."""
        order = permutation(len(self), seed, "split").tolist()
        cut = max(1, round(share * len(self)))
        part, rest = sorted(order[:cut]), sorted(order[cut:])
        return self.pick(rest), self.pick(part)

    def fingerprint(self) -> str:
        """Return the SHA-256 over inputs and targets of all rows in order."""
        digest = hashlib.sha256()
        for first in range(0, len(self), 256):
            inputs, targets = self.batch(range(first, min(first + 256, len(self))))
            for part in (*_walk(inputs), targets):
                if isinstance(part, Tensor):
                    digest.update(f"{part.dtype}{tuple(part.shape)}".encode())
                    digest.update(part.cpu().contiguous().numpy().tobytes())
                else:
                    digest.update(repr(part).encode())
        return digest.hexdigest()

    def pick(self, places: Sequence[int]) -> Examples:
        """Return some of the rows, in the order in which they are named."""
        rows = [self.rows[number] for number in places]
        return Examples(self._dataset, rows, tensors=self._tensors, read=self._read)


def _walk(inputs: Any) -> Iterator[Any]:
    """Yield the tensors and texts of inputs: themselves, or what dictionaries and objects hold."""
    if isinstance(inputs, Mapping):
        for name in sorted(inputs):
            yield from _walk(inputs[name])
    elif isinstance(inputs, list | tuple):
        for each in inputs:
            yield from _walk(each)
    elif isinstance(inputs, Tensor) or not hasattr(inputs, "__dict__"):
        yield inputs
    else:
        yield from _walk(vars(inputs))


def _stack(items: Sequence[Any]) -> tuple[Tensor, Tensor]:
    return default_collate([i[0] for i in items]), default_collate([i[1] for i in items])


def compute_logits(
    forward: Callable[[Any], Tensor],
    examples: Examples,
    *,
    device: torch.device,
    places: Sequence[int] | None = None,
) -> tuple[Tensor, Tensor]:
    """Answer rows without gradients: logits, (n, K), and their targets, on the CPU."""
    logits, targets = [], []
    places = examples.sort_by_length(range(len(examples)) if places is None else places)
    with torch.no_grad():
        for first in range(0, len(places), 64):
            inputs, target = examples.batch(places[first : first + 64])
            logits.append(forward(inputs.to(device)).float().cpu())
            targets.append(target)
    return torch.cat(logits), torch.cat(targets)
