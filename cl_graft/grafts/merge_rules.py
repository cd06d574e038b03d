"""Merging: one model from the grafts of many tasks, for when nobody says which task is asked.

What is merged are *standalone* grafts, a task's whole region with the values of its independent
run: the owned parts of a bank are disjoint. A rule sees only task vectors, by how much each graft
moves the base, side by side on the union of regions. Each is the published one on sparse vectors:
what a graft leaves alone counts as 0, unless a rule asks who holds a coordinate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from cl_graft.errors import InputError, find
from cl_graft.grafts.bank import GraftBank
from cl_graft.grafts.graft import Graft, gather
from cl_graft.grafts.region import Parameters, union


@dataclass(frozen=True, eq=False)
class TaskVectors:
    """The grafts of T tasks as differences from the base, on the n coordinates of all of them.

    Attributes:
        base: The base's values there.
        deltas: Values of the grafts minus the base's, fp64 of shape (T, n); 0 outside a region.
        held: True where the region of a task holds a coordinate; bool, shape (T, n).

    Examples:
        >>> from cl_graft.grafts.region import Layout, Region
        >>> base = {"weight": torch.zeros(4)}
        >>> layout = Layout.of(base)
        >>> first = Graft(Region.of(layout, [0, 1]), torch.tensor([1.0, 2.0]))
        >>> second = Graft(Region.of(layout, [1]), torch.tensor([-4.0]))
        >>> vectors = TaskVectors.of([first, second], base)
        >>> vectors.deltas
        tensor([[ 1.,  2.],
                [ 0., -4.]], dtype=torch.float64)
        >>> vectors.moved_by(vectors.deltas.mean(0)).values
        tensor([ 0.5000, -1.0000])
    """

    base: Graft
    deltas: Tensor
    held: Tensor

    @classmethod
    def of(cls, grafts: Sequence[Graft], base: Parameters) -> TaskVectors:
        """Lay one or more grafts of one base side by side, with the parameters of that base."""
        if not grafts:
            raise ValueError("merging needs at least one graft, got none")
        region = union((graft.region for graft in grafts), layout=grafts[0].region.layout)
        values = gather(base, region)
        deltas = torch.zeros(len(grafts), len(region), dtype=torch.float64)
        held = torch.zeros(len(grafts), len(region), dtype=torch.bool)
        for row, graft in enumerate(grafts):
            places = region.find(graft.region)
            deltas[row, places] = graft.values.double() - values.values[places].double()
            held[row, places] = True
        return cls(values, deltas, held)

    def moved_by(self, delta: Tensor) -> Graft:
        """Return the graft that moves the base by a merged vector, fp64 of shape (n,).

        Differences of fp32 values are exact in fp64 unless they lie very far apart, so the vector
        of a single graft gives its very values.
        """
        values = self.base.values.double() + delta
        return Graft(self.base.region, values.to(self.base.values.dtype))


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

    Yadav et al., 2023, https://arxiv.org/abs/2306.01708. Trimming leaves the share `keep`, in
    (0, 1], of each graft's coordinates, those that moved most; 1 is a good choice, as a graft is
    trimmed already. The sign is that of the sum; the mean is over the trimmed vectors of this sign
    that are not 0.
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

    Yu et al., 2024, https://arxiv.org/abs/2311.03099: a coordinate is dropped with probability
    `drop`, p in [0, 1), and else divided by 1 − p, so the expectation is task arithmetic.
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


def localize_and_stitch(vectors: TaskVectors) -> Tensor:
    """Write every graft into its own region, and average where regions overlap.

    He et al., 2024, https://arxiv.org/abs/2408.13656.
    """
    return vectors.deltas.sum(0) / vectors.held.sum(0)


@dataclass(frozen=True)
class Merge:
    """One rule.

    Attributes:
        name: As configs know it.
        rule: From task vectors, and settings of its own, to one vector.
        source: Paper of the method.
        scaled: Whether its vector is multiplied by a coefficient, which has to be chosen.
        random: Whether it draws, from a ``generator``.
    """

    name: str
    rule: Callable[..., Tensor]
    source: str
    scaled: bool = True
    random: bool = False


_RULES = (
    ("average", average, "Wortsman et al., 2022, https://arxiv.org/abs/2203.05482"),
    ("task_arithmetic", add_up, "Ilharco et al., 2023, https://arxiv.org/abs/2212.04089"),
    ("ties", ties, "Yadav et al., 2023, https://arxiv.org/abs/2306.01708"),
    ("dare", dare, "Yu et al., 2024, https://arxiv.org/abs/2311.03099"),
    ("magmax", magmax, "Marczak et al., 2024, https://arxiv.org/abs/2407.06322"),
    (
        "localize_and_stitch",
        localize_and_stitch,
        "He et al., 2024, https://arxiv.org/abs/2408.13656",
    ),
)
_UNSCALED = ("average", "localize_and_stitch")

MERGES: Mapping[str, Merge] = MappingProxyType(
    {
        name: Merge(name, rule, source, scaled=name not in _UNSCALED, random=name == "dare")
        for name, rule, source in _RULES
    }
)


def merge_grafts(
    grafts: Sequence[Graft],
    base: Parameters,
    *,
    rule: str,
    coefficient: float = 1.0,
    seed: int = 0,
    **settings: Any,
) -> Graft:
    """Merge grafts of one base into one graft on the union of their regions.

    Args:
        grafts: The grafts, whose regions may overlap.
        base: The parameters of the base, at their base values.
        rule: One of `MERGES`.
        coefficient: Factor of the rule's vector; see `Merge.scaled`.
        seed: For a rule that draws.
        **settings: The rule's own, all of them, as ``keep=1.0`` for `ties`.

    Raises:
        InputError: If there is no such rule.
        ValueError: If there is no graft, or a setting does not fit.
    """
    merge = find(MERGES, rule, missing="no rule of merging")
    if merge.random:
        settings["generator"] = torch.Generator().manual_seed(seed)
    vectors = TaskVectors.of(grafts, base)
    return vectors.moved_by(coefficient * merge.rule(vectors, **settings))


def standalone_grafts(bank: GraftBank) -> list[Graft]:
    """Return the standalone grafts of a bank's tasks; an entry without one is refused."""
    missing = [entry.task for entry in bank.entries if entry.standalone is None]
    if missing:
        raise InputError(
            f"the bank has no standalone graft of {', '.join(missing)} to merge; learn with "
            "keep_standalone, and by a localizer that makes a dense run"
        )
    return [entry.standalone for entry in bank.entries if entry.standalone is not None]
