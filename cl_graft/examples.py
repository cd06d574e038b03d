"""Training and dev rows of one task, batched by row number."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.utils.data import default_collate

from cl_graft.randomness import permutation

__all__ = ["Examples"]


class Examples:
    """The rows of a dataset whose items start with (input, target), batched by row number."""

    def __init__(self, dataset: Any, rows: Sequence[int] | None = None) -> None:
        self._dataset = dataset
        self.rows = list(range(len(dataset)) if rows is None else rows)

    def __len__(self) -> int:
        return len(self.rows)

    def batch(self, places: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Stack the inputs and the targets of some rows."""
        items = [self._dataset[self.rows[place]] for place in places]
        return default_collate([i[0] for i in items]), default_collate([i[1] for i in items])

    def split(self, share: float, *, seed: int) -> tuple[Examples, Examples]:
        """Split off a share of the rows at random, at least one; returns (rest, part)."""
        order = permutation(len(self), seed, "split").tolist()
        cut = max(1, round(share * len(self)))
        part, rest = sorted(order[:cut]), sorted(order[cut:])
        pick = [self.rows[i] for i in part], [self.rows[i] for i in rest]
        return Examples(self._dataset, pick[1]), Examples(self._dataset, pick[0])

    def fingerprint(self) -> str:
        """Return the SHA-256 over inputs and targets of all rows in order."""
        digest = hashlib.sha256()
        for first in range(0, len(self), 256):
            inputs, targets = self.batch(range(first, min(first + 256, len(self))))
            for tensor in (inputs, targets):
                digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
                digest.update(tensor.contiguous().numpy().tobytes())
        return digest.hexdigest()
