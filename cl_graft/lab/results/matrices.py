"""Matrices of scores as JSON: whole up to 20 tasks, above as what each row changes.

A strategy that forgets nothing changes one score a task, so its results grow with the number of
tasks and not with its square.
"""

from __future__ import annotations

from typing import Any

Matrix = list[list[float | None]]

MOST_WHOLE = 20
"""Rows up to which a matrix is written as it is."""


def pack_matrix(matrix: Matrix | None) -> Any:
    """Return a matrix as JSON can hold it.

    Of more than 20 rows it is ``{"columns": n, "changes": [[[column, value], …], …]}``, where a row
    lists what differs from the row above it, the first from a row of nulls.
    """
    if matrix is None or len(matrix) <= MOST_WHOLE or len({*map(len, matrix)}) > 1:
        return matrix
    columns = len(matrix[0])
    above = [[None] * columns, *matrix]
    changes = [
        [[at, value] for at, value in enumerate(row) if value != before[at]]
        for before, row in zip(above, matrix, strict=False)
    ]
    return {"columns": columns, "changes": changes}


def unpack_matrix(packed: Any, *, most: int) -> Any:
    """Return the matrix that `pack_matrix` packed; anything else as it is.

    Args:
        packed: The JSON value.
        most: Most columns and rows that the matrix may have.

    Raises:
        ValueError: If no matrix is packed so.
    """
    if not isinstance(packed, dict):
        return packed
    columns, changes = packed.get("columns"), packed.get("changes")
    if type(columns) is not int or not isinstance(changes, list):
        raise ValueError("a matrix of scores has columns and changes")
    if not (0 <= columns <= most and len(changes) <= most):
        raise ValueError(f"a matrix of {len(changes)} rows and {columns} columns, of {most} tasks")
    row: list[float | None] = [None] * columns
    matrix: list[list[float | None]] = []
    for changed in changes:
        row = [*row]
        for at, value in changed:
            if type(at) is not int or not 0 <= at < columns:
                raise ValueError(f"a matrix of {columns} columns has no column {at!r:.20}")
            row[at] = value
        matrix.append(row)
    return matrix
