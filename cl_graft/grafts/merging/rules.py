"""The rules of merging: from task vectors to the vector of one model.

Each rule is the published one on sparse vectors: what a graft leaves alone counts as 0, unless a
rule asks who holds a coordinate. With one task, every rule but DARE gives that task's vector back.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cl_graft.grafts.merging.task_vectors import TaskVectors


def average(vectors: TaskVectors) -> Tensor:
    """Average the models: the mean of all vectors, zeros included.

    Wortsman et al., 2022, https://arxiv.org/abs/2203.05482; as models are averaged, so are their
    differences from the base.
    """
    return vectors.deltas.mean(0)


def add_up(vectors: TaskVectors) -> Tensor:
    """Add all vectors up: task arithmetic (Ilharco et al., 2023, https://arxiv.org/abs/2212.04089)."""
    return vectors.deltas.sum(0)


def ties(vectors: TaskVectors, *, keep: float) -> Tensor:
    """Trim, elect a sign for each coordinate, and average the values that have it.

    Yadav et al., 2023, https://arxiv.org/abs/2306.01708. The sign is that of the sum; the
    mean is over the trimmed vectors of this sign that are not 0.

    Args:
        vectors: The vectors.
        keep: Share of each graft's coordinates that trimming leaves, those that moved most, in
            (0, 1]; of equal ones the earlier. A graft is trimmed already, so 1 is a good choice.

    Raises:
        ValueError: If `keep` is outside its range.
    """
    if not 0 < keep <= 1:
        raise ValueError(f"keep must be in (0, 1], got {keep}")
    trimmed = torch.zeros_like(vectors.deltas)
    for row, (delta, held) in enumerate(zip(vectors.deltas, vectors.held, strict=True)):
        count = max(1, round(keep * int(held.sum())))
        # By size, then by place: a stable sort keeps earlier coordinates first.
        most = delta.abs().masked_fill(~held, -1.0).argsort(descending=True, stable=True)[:count]
        trimmed[row, most] = delta[most]
    elected = trimmed.sum(0).sign()
    agreeing = (trimmed.sign() == elected) & (elected != 0)
    return (trimmed * agreeing).sum(0) / agreeing.sum(0).clamp(min=1)


def dare(vectors: TaskVectors, *, drop: float, generator: torch.Generator) -> Tensor:
    """Drop coordinates of each graft at random, rescale what is left, and add up.

    Yu et al., 2024, https://arxiv.org/abs/2311.03099: a coordinate is dropped with
    probability p and else divided by 1 − p, so the expectation is task arithmetic.

    Args:
        vectors: The vectors.
        drop: p, in [0, 1).
        generator: Draws what is dropped.

    Raises:
        ValueError: If `drop` is outside its range.
    """
    if not 0 <= drop < 1:
        raise ValueError(f"drop must be in [0, 1), got {drop}")
    draws = torch.rand(vectors.deltas.shape, generator=generator, dtype=torch.float64)
    return (vectors.deltas * (draws >= drop)).sum(0) / (1 - drop)


def magmax(vectors: TaskVectors) -> Tensor:
    """Take the largest move of each coordinate, whichever task made it; of equal ones the first's.

    MagMax (Marczak et al., 2024, https://arxiv.org/abs/2407.06322), on grafts of independent
    runs; the paper tunes each task from the weights of the one before.
    """
    largest = vectors.deltas.abs().argmax(0, keepdim=True)
    return vectors.deltas.gather(0, largest)[0]


def consensus(vectors: TaskVectors, *, threshold: float, agree: int) -> Tensor:
    """Add all vectors up, and keep the coordinates that enough tasks find important.

    Consensus task arithmetic (Wang et al., 2024, https://arxiv.org/abs/2405.07813): a coordinate is
    important to task t (its TALL mask) if |τ_t| ≥ threshold · |Σ τ − τ_t|.

    Args:
        vectors: The vectors.
        threshold: The paper's λ, at least 0.
        agree: Number of tasks that it takes; where there are fewer, all of them. With 2, the
            paper's choice for dense vectors, coordinates that only one graft moves stay at the
            base.

    Raises:
        ValueError: If a setting is outside its range.
    """
    if not threshold >= 0 or agree < 1:
        raise ValueError(
            f"threshold must be at least 0 and agree at least 1, got {threshold} and {agree}"
        )
    total = vectors.deltas.sum(0)
    others = (total - vectors.deltas).abs()
    # A task that does not move a coordinate finds it important to nobody.
    masks = (vectors.deltas.abs() >= threshold * others) & (vectors.deltas != 0)
    return total * (masks.sum(0) >= min(agree, len(vectors.deltas)))


def localize_and_stitch(vectors: TaskVectors) -> Tensor:
    """Write every graft into its own region, and average where regions overlap.

    He et al., 2024, https://arxiv.org/abs/2408.13656.
    """
    return vectors.deltas.sum(0) / vectors.held.sum(0)
