"""Random orders of coordinates that a seed names, so that a file can hold the seed in their place.

An order is a permutation of [0, total), computed place by place: four rounds of invertible steps
mix b bits, the fewest that hold `total` numbers, and a result that is no coordinate is mixed again
(Black and Rogaway, 2002, "Ciphers with arbitrary finite domains",
https://doi.org/10.1007/3-540-45760-7_9). A coordinate's place is found by the steps backwards. All
is arithmetic of whole numbers, the same on every machine.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor, from_numpy

from cl_graft.runtime.seeding import derive

RULE = "mixed bits 1"
"""Name of the algorithm; another algorithm gets another one."""

_ROUNDS = 4
_AT_ONCE = 2**18
"""Numbers that are mixed at a time: as many as a CPU's cache holds."""


def find_coordinates(places: Tensor, *, seed: int, total: int) -> Tensor:
    """Return the coordinates at some places of an order, int64, in the order of `places`.

    Examples:
        >>> from torch import arange
        >>> find_coordinates(arange(5), seed=0, total=5).sort().values
        tensor([0, 1, 2, 3, 4])
    """
    return _walk(places, seed, total, backwards=False)


def find_places(coordinates: Tensor, *, seed: int, total: int) -> Tensor:
    """Return the place of each coordinate in an order, int64; `find_coordinates` backwards."""
    return _walk(coordinates, seed, total, backwards=True)


def _walk(numbers: Tensor, seed: int, total: int, *, backwards: bool) -> Tensor:
    bits = max(2, (total - 1).bit_length())
    low, half = np.uint64(2**bits - 1), np.uint64((bits + 1) // 2)
    rounds = [[derive(seed, RULE, number, at) for at in range(2)] for number in range(_ROUNDS)]
    out = numbers.numpy().astype(np.uint64)
    for part in np.split(out, range(_AT_ONCE, len(out), _AT_ONCE)):
        left = np.arange(len(part))
        while len(left):
            mixed = part[left]
            for offset, factor in reversed(rounds) if backwards else rounds:
                odd = factor | 1  # which has an inverse
                if backwards:
                    inverse = np.uint64(pow(odd, -1, 2**bits))
                    mixed = ((mixed ^ (mixed >> half)) - np.uint64(offset)) * inverse & low
                else:
                    mixed = (mixed * np.uint64(odd) + np.uint64(offset)) & low
                    mixed ^= mixed >> half
            part[left] = mixed
            left = left[mixed >= total]
    return from_numpy(out.view(np.int64))
