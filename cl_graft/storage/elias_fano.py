"""Sorted coordinate numbers in about 2 + log2(U / n) bits each.

Elias–Fano coding (Elias 1974; Vigna 2013, "Quasi-succinct indices",
https://arxiv.org/abs/1206.4300) of n increasing numbers below U: the lowest
l = ⌊log2(U / n)⌋ bits of each number stand side by side; the rest is written in unary, number i
as a one at place (number >> l) + i. The gaps of a region of 0.01 % cost two bytes a coordinate
instead of eight, and encoding and decoding need no loop.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

# Bits of a number that always fit into eight bytes, whichever bit of the first it begins at.
_FIELD = 56


def packed_size(count: int, total: int) -> int:
    """Return how many bytes `count` numbers below `total` take."""
    low_bits, places = _plan(count, total)
    return _bytes(count * low_bits) + _bytes(places)


def pack_indices(index: Tensor, *, total: int) -> Tensor:
    """Pack increasing numbers in [0, `total`), int64, as uint8 of shape (`packed_size`,)."""
    numbers = index.numpy()
    low_bits, places = _plan(len(numbers), total)
    low = np.empty((len(numbers), low_bits), dtype=np.uint8)
    for bit in range(low_bits):
        low[:, bit] = (numbers >> bit) & 1
    high = np.zeros(places, dtype=np.uint8)
    high[(numbers >> low_bits) + np.arange(len(numbers))] = 1
    parts = [np.packbits(bits.reshape(-1), bitorder="little") for bits in (low, high)]
    return torch.from_numpy(np.concatenate(parts))


def unpack_indices(packed: Tensor, *, count: int, total: int) -> Tensor:
    """Unpack what `pack_indices` packed; what is no such code is refused.

    Nothing is allocated before the length of `packed` has been checked against `count`.
    """
    if packed.dtype != torch.uint8 or packed.dim() != 1:
        kind = f"{packed.dim()}-d {packed.dtype}"
        raise ValueError(f"packed coordinates must be 1-d uint8, got {kind}")
    if not 0 <= count <= total <= 2**62:
        raise ValueError(f"cannot hold {count} of {total} coordinates")
    if len(packed) != (size := packed_size(count, total)):
        raise ValueError(f"{count} of {total} coordinates take {size} bytes, got {len(packed)}")
    low_bits, places = _plan(count, total)
    cut = _bytes(count * low_bits)
    data = packed.numpy()
    high = np.unpackbits(data[cut:], bitorder="little")
    spare = count * low_bits % 8  # bits of the last byte of the low part; the others are padding
    if (spare and data[cut - 1] >> spare) or high[places:].any():
        raise ValueError("the padding of packed coordinates must be zero")
    ones = np.flatnonzero(high.view(bool))
    if len(ones) != count:
        raise ValueError(f"expected {count} coordinates, the code holds {len(ones)}")
    numbers = (ones - np.arange(count)) << low_bits
    if low_bits:
        numbers |= _low(data[:cut], count, low_bits)
    if count and (bool((numbers[1:] <= numbers[:-1]).any()) or int(numbers[-1]) >= total):
        raise ValueError(f"coordinates must increase and stay below {total}")
    return torch.from_numpy(numbers)


def _low(data: np.ndarray, count: int, bits: int) -> np.ndarray:
    """Read `count` numbers of `bits` bits that stand side by side."""
    padded = np.concatenate([data, np.zeros(8, dtype=np.uint8)])
    words = np.ndarray(len(data) + 1, dtype="<u8", buffer=padded, strides=(1,))  # one at every byte
    starts = np.arange(0, count * bits, bits)

    def field(starts: np.ndarray, bits: int) -> np.ndarray:
        shifted = words.take(starts >> 3) >> (starts & 7).astype(np.uint64)
        return shifted.astype(np.int64) & ((1 << bits) - 1)

    if bits <= _FIELD:
        return field(starts, bits)
    return field(starts, _FIELD) | (field(starts + _FIELD, bits - _FIELD) << _FIELD)


def _plan(count: int, total: int) -> tuple[int, int]:
    """Return the number of low bits a coordinate, and of places of the unary part."""
    if not count:
        return 0, 0
    low_bits = (total // count).bit_length() - 1
    return low_bits, count + (total >> low_bits) + 1


def _bytes(bits: int) -> int:
    return -(-bits // 8)
