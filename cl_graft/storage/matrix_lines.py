"""Whole columns and rows of matrices, which the file of a region holds by their numbers.

A column of a matrix with 4,096 rows is one number in place of 4,096 coordinates. Lines are numbered
through the matrices of a layout in their order, of each its columns, then its rows. A parameter of
more than two axes counts as the matrix of its first axis against all others.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cl_graft.grafts.region import Layout, Region
from cl_graft.storage.elias_fano import packed_size

_SHORTEST = 32
"""Shortest side of a matrix with lines; the packed index of shorter ones is as small."""

_BYTES, _HEADER = 4, 96
"""Bytes of a line's number, int32, and those of one more tensor in the header of a file."""


class _Matrix(NamedTuple):
    """The first coordinate of a matrix, its sides, and the number of its first line."""

    start: int
    rows: int
    columns: int
    line: int


@lru_cache(maxsize=8)
def _matrices(layout: Layout) -> dict[str, _Matrix]:
    matrices: dict[str, _Matrix] = {}
    line = 0
    parts = zip(layout.names, layout.shapes, layout.starts, layout.sizes, strict=False)
    for name, shape, start, size in parts:
        if len(shape) > 1 and size and min(sides := (shape[0], size // shape[0])) >= _SHORTEST:
            matrices[name] = _Matrix(start, *sides, line)
            line += sum(sides)
    return matrices if line < 2**31 else {}


def split_lines(region: Region) -> tuple[Tensor, Tensor]:
    """Return the numbers of a region's whole columns and rows, int32, and its other coordinates.

    There are no lines where they would not make the file smaller.
    """
    matrices, lines = _matrices(region.layout), [np.empty(0, dtype=np.int64)]
    left = np.ones(len(region), dtype=bool)
    for name, inside, part in region.by_parameter():
        matrix = matrices.get(name)
        if matrix is None or len(inside) < min(matrix.rows, matrix.columns):
            continue
        row, column = np.divmod(inside.numpy(), matrix.columns)
        columns = np.bincount(column, minlength=matrix.columns) == matrix.rows
        rows = np.bincount(row, minlength=matrix.rows) == matrix.columns
        if columns.all():  # the whole matrix, of which the fewer lines are taken
            (columns if matrix.rows < matrix.columns else rows)[:] = False
        left[part] = ~(columns[column] | rows[row])
        lines.append(matrix.line + np.flatnonzero(np.concatenate([columns, rows])))
    numbers = torch.from_numpy(np.concatenate(lines).astype(np.int32))
    rest, total = region.index[torch.from_numpy(left)], region.layout.total
    packed = packed_size(len(rest), total) + _BYTES * len(numbers) + _HEADER
    if packed >= packed_size(len(region), total):
        return numbers[:0], region.index
    return numbers, rest


def largest_index(size: int, layout: Layout) -> int:
    """Return the most bytes of `size` coordinates in lines, of which one may be cut off."""
    sides = [side for matrix in _matrices(layout).values() for side in matrix[1:3]]
    packed = packed_size(size, layout.total)
    cut = packed_size(min(size, max(sides, default=0)), layout.total)
    return min(packed, cut + _HEADER + _BYTES * (size // min(sides))) if sides else packed


Lines = list[tuple[_Matrix, np.ndarray, np.ndarray]]
"""Matrices with lines, and the columns and rows of each."""


def read_lines(numbers: Tensor, layout: Layout) -> Lines:
    """Return the lines of a layout with these numbers; what are no such numbers is refused."""
    if numbers.dtype != torch.int32 or numbers.dim() != 1:
        kind = f"{numbers.dim()}-d {numbers.dtype}"
        raise ValueError(f"numbers of columns and rows must be 1-d int32, got {kind}")
    matrices, whole = list(_matrices(layout).values()), numbers.numpy().astype(np.int64)
    most = sum(matrix.rows + matrix.columns for matrix in matrices)
    if (whole[1:] <= whole[:-1]).any() or (whole < 0).any() or (whole >= most).any():
        raise ValueError(f"numbers of columns and rows must increase and lie in [0, {most})")
    owners = np.searchsorted([matrix.line for matrix in matrices], whole, side="right") - 1
    lines: Lines = []
    for owner, first in zip(*np.unique(owners, return_index=True), strict=True):
        matrix = matrices[owner]
        inside = whole[first : np.searchsorted(owners, owner, side="right")] - matrix.line
        cut = np.searchsorted(inside, matrix.columns)
        lines.append((matrix, inside[:cut], inside[cut:] - matrix.columns))
    return lines


def count_coordinates(lines: Lines) -> int:
    """Return how many coordinates lie in columns and rows."""
    return sum(len(c) * m.rows + len(r) * (m.columns - len(c)) for m, c, r in lines)


def unfold_lines(lines: Lines) -> Iterator[Tensor]:
    """Yield the coordinates of columns and rows in blocks, each ascending and none in two."""
    for matrix, columns, rows in lines:
        # Without columns, or rows, no array of a whole side is made: a file may state any shape.
        others = np.arange(matrix.rows) if len(columns) else columns
        others = np.delete(others, rows) if len(columns) and len(rows) else others
        every = np.arange(matrix.columns) if len(rows) else rows
        for down, across in ((others, columns), (rows, every)):
            block = down[:, None] * matrix.columns + across + matrix.start
            yield torch.from_numpy(block.reshape(-1))
