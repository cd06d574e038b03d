"""Measures of a stream of T experiences, computed from the matrix R of scores.

`R[i][j]` is the score on the test set of experience j after training on experience i, both counted
from 0; R is square. Scores are fractions (accuracy, F1) or correlations, so every measure here is
one too. A cell is None where there is no answer, usually above the diagonal; a measure that needs
such a cell is None itself, never a mean over fewer tasks.

Where experiences are scored by different metrics, a mean over all of them has no unit. Every
measure can be taken over some of the experiences (`tasks`, their places; None means all), such as
those of one metric (`cl_graft.metrics.by_metric`): its formula stays, and its mean goes over these.
Every measure raises a `ValueError` if R is not square, or a score is not finite.

Backward and forward transfer go by Lopez-Paz & Ranzato, "Gradient Episodic Memory for Continual
Learning" (2017), https://arxiv.org/abs/1706.08840; forgetting by Chaudhry et al., "Riemannian Walk
for Incremental Learning" (2018), https://arxiv.org/abs/1801.10112. The measures that end in
`_over_stream` go by Díaz-Rodríguez et al., "Don't forget, there is more than forgetting" (2018),
https://arxiv.org/abs/1810.13166, who average over every moment of the stream and not its end alone.
Other libraries compute other numbers under the same names: compare formulas, not names.
"""

import math
from collections.abc import Collection, Iterable, Sequence

ScoreMatrix = Sequence[Sequence[float | None]]
"""R; rows are experiences trained on, columns experiences tested on."""


def average_accuracy(R: ScoreMatrix, *, tasks: Collection[int] | None = None) -> float | None:
    """Average the scores of all experiences after the last one.

    ACC = 1/T · Σ_{j<T} R[T-1][j] (Lopez-Paz & Ranzato 2017, eq. 2). Every experience counts the
    same, whatever the size of its test set.

    Returns:
        The average, or None if R is empty or a score of the last row is missing.

    Examples:
        >>> average_accuracy([[0.9, None], [0.7, 0.8]])
        0.75
    """
    size = _check_size(R)
    return _mean(R[size - 1][j] for j in _places(tasks, range(size)))


def backward_transfer(R: ScoreMatrix, *, tasks: Collection[int] | None = None) -> float | None:
    """Average what later training did to earlier experiences; negative means forgetting.

    BWT = 1/(T-1) · Σ_{j<T-1} (R[T-1][j] − R[j][j]) (Lopez-Paz & Ranzato 2017, eq. 3). It is exactly
    0.0 where no score changed.

    Returns:
        The average difference, or None if there are fewer than two experiences or a score of the
        last row or the diagonal is missing.

    Examples:
        >>> backward_transfer([[0.75, None], [0.5, 0.9]])
        -0.25
    """
    size = _check_size(R)
    return _mean(_difference(R[size - 1][j], R[j][j]) for j in _places(tasks, range(size - 1)))


def forward_transfer(
    R: ScoreMatrix,
    *,
    baseline: Sequence[float | None] | None = None,
    tasks: Collection[int] | None = None,
) -> float | None:
    """Average what earlier training did for experiences not yet learned.

    FWT = 1/(T-1) · Σ_{1≤j<T} (R[j-1][j] − b[j]) (Lopez-Paz & Ranzato 2017, eq. 4).

    Args:
        R: Matrix of scores; the cells just above the diagonal are needed.
        baseline: b[j], the score on experience j before any training (a model at initialisation,
            or the zero-shot answer of the base), one a task; b[0] is never used. Without it,
            forward transfer is undefined.
        tasks: Places of the experiences to average over; None means all.

    Returns:
        The average difference, or None if there are fewer than two experiences, the baseline is
        missing or a score it needs is.

    Raises:
        ValueError: If R is not square, the baseline has another length, or a score is not finite.

    Examples:
        >>> forward_transfer([[0.9, 0.75], [0.7, 0.8]], baseline=[0.5, 0.5])
        0.25
    """
    size = _check_size(R)
    if baseline is None:
        return None
    if len(baseline) != size:
        raise ValueError(
            f"the baseline must hold one score an experience: expected {size}, got {len(baseline)}"
        )
    _check_finite(baseline, "baseline")
    return _mean(_difference(R[j - 1][j], baseline[j]) for j in _places(tasks, range(1, size)))


def forgetting(R: ScoreMatrix, *, tasks: Collection[int] | None = None) -> float | None:
    """Average how far each experience ended below the best it had ever reached.

    F = 1/(T-1) · Σ_{j<T-1} (max_{j≤i<T-1} R[i][j] − R[T-1][j]) (Chaudhry et al. 2018, section 3).
    The maximum goes over the rows from the experience's own to the last but one: a lucky zero-shot
    score from before it was learned is nothing that could be forgotten. Negative values are
    possible: an experience can end above its earlier best.

    Returns:
        The average drop, or None if there are fewer than two experiences, the last row lacks a
        score or a column has no earlier one.

    Examples:
        >>> forgetting([[0.75, None], [0.5, 0.9]])
        0.25
    """
    size = _check_size(R)
    return _mean(
        _difference(_best(R[i][j] for i in range(j, size - 1)), R[size - 1][j])
        for j in _places(tasks, range(size - 1))
    )


def accuracy_over_stream(R: ScoreMatrix, *, tasks: Collection[int] | None = None) -> float | None:
    """Average the scores of all experiences learned so far, over all moments of the stream.

    A = 2/(T(T+1)) · Σ_{i≥j} R[i][j] (Díaz-Rodríguez et al. 2018, section 3.1).

    Returns:
        The average, or None if R is empty or a score on or below the diagonal is missing.

    Examples:
        >>> accuracy_over_stream([[0.75, None], [0.5, 1.0]])
        0.75
    """
    size = _check_size(R)
    return _mean(R[i][j] for i in range(size) for j in _places(tasks, range(i + 1)))


def backward_transfer_over_stream(
    R: ScoreMatrix, *, tasks: Collection[int] | None = None
) -> float | None:
    """Average what later training did to earlier experiences, over all moments of the stream.

    BWT = 2/(T(T-1)) · Σ_{i>j} (R[i][j] − R[j][j]) (Díaz-Rodríguez et al. 2018, section 3.1).

    Returns:
        The average difference, or None if there are fewer than two experiences or a score on or
        below the diagonal is missing.

    Examples:
        >>> backward_transfer_over_stream([[1.0, None, None], [0.5, 1.0, None], [0.5, 0.5, 1.0]])
        -0.5
    """
    size = _check_size(R)
    return _mean(
        _difference(R[i][j], R[j][j]) for i in range(size) for j in _places(tasks, range(i))
    )


def forward_transfer_over_stream(
    R: ScoreMatrix, *, tasks: Collection[int] | None = None
) -> float | None:
    """Average the scores of experiences that are not learned yet, over all moments of the stream.

    FWT = 2/(T(T-1)) · Σ_{i<j} R[i][j] (Díaz-Rodríguez et al. 2018, section 3.1). It is no
    difference: chance and the base's own knowledge are part of it.

    Returns:
        The average, or None if there are fewer than two experiences or a score above the diagonal
        is missing.

    Examples:
        >>> forward_transfer_over_stream([[1.0, 0.5, 0.25], [0.9, 1.0, 0.75], [0.8, 0.9, 1.0]])
        0.5
    """
    size = _check_size(R)
    return _mean(R[i][j] for i in range(size) for j in _places(tasks, range(i + 1, size)))


def gain_over_isolated(
    R: ScoreMatrix, *, isolated: Sequence[float | None], tasks: Collection[int] | None = None
) -> float | None:
    """Average what earlier tasks gave to experiences that were learned on top of them.

    1/(T-1) · Σ_{1≤j<T} (R[j][j] − alone[j]): unlike `forward_transfer`, which asks before an
    experience is learned, it asks right after.

    Args:
        R: Matrix of scores; the diagonal is needed.
        isolated: alone[j], the score on experience j after training on it alone, from the base,
            one an experience; that of the first is never used.
        tasks: Places of the experiences to average over; None means all.

    Returns:
        The average difference, or None if there are fewer than two experiences or a score that it
        needs is missing.

    Raises:
        ValueError: If R is not square, `isolated` has another length, or a score is not finite.

    Examples:
        >>> gain_over_isolated([[0.9, None], [0.9, 0.75]], isolated=[0.9, 0.5])
        0.25
    """
    size = _check_size(R)
    if len(isolated) != size:
        raise ValueError(
            f"isolated must hold one score an experience: expected {size}, got {len(isolated)}"
        )
    _check_finite(isolated, "isolated")
    return _mean(_difference(R[j][j], isolated[j]) for j in _places(tasks, range(1, size)))


def _check_size(R: ScoreMatrix) -> int:
    size = len(R)
    for i, row in enumerate(R):
        if len(row) != size:
            raise ValueError(
                f"R must be square, one row and one column an experience: "
                f"row {i} has {len(row)} cells, expected {size}; use None where there is no score"
            )
        _check_finite(row, f"R[{i}]")
    return size


def _check_finite(scores: Sequence[float | None], name: str) -> None:
    for j, value in enumerate(scores):
        if value is not None and not math.isfinite(value):
            raise ValueError(
                f"{name}[{j}] is {value}, expected a finite score or None; "
                "did the training diverge?"
            )


def _places(tasks: Collection[int] | None, places: range) -> list[int]:
    """Return those of some places that are averaged over."""
    return [j for j in places if tasks is None or j in tasks]


def _difference(left: float | None, right: float | None) -> float | None:
    return None if left is None or right is None else left - right


def _best(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _mean(values: Iterable[float | None]) -> float | None:
    present: list[float] = []
    for value in values:
        if value is None:
            return None
        present.append(value)
    return math.fsum(present) / len(present) if present else None
