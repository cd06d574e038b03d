"""The localizers, one row each: a score function, followed by one shared exact selection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from torch import Tensor

from cl_graft.errors import InputError, nearest
from cl_graft.localization.base_gradient import base_gradient
from cl_graft.localization.learned_mask import learned_mask
from cl_graft.localization.movement import movement
from cl_graft.localization.paper_mask import paper_mask
from cl_graft.localization.problem import Problem
from cl_graft.localization.random import uniform
from cl_graft.localization.ranking import Ranking, rank

__all__ = ["LOCALIZERS", "Localizer", "find_localizer", "localize"]

_GRAFTING = "Panigrahi et al., 2023, https://arxiv.org/abs/2302.06600"


class ScoreFunction(Protocol):
    """Scores the coordinates of a problem, higher is better."""

    def __call__(self, problem: Problem, *, k: int, steps: int) -> dict[str, Tensor]:
        """Return one float tensor a parameter, in the parameter's shape."""
        ...


@dataclass(frozen=True)
class Localizer:
    """One way to choose a region.

    Attributes:
        name: As the command line and the settings know it.
        score: The score function.
        gradients: Whether it computes gradients of the task's loss.
        needs_tuned: Whether it looks at the densely fine-tuned weights.
        source: Paper and place.
    """

    name: str
    score: ScoreFunction
    gradients: bool
    needs_tuned: bool
    source: str


_ROWS = (
    Localizer("learned_mask", learned_mask, True, True, f"{_GRAFTING}, Eqs. 3 and 4, sound mode"),
    Localizer("paper_mask", paper_mask, True, True, f"{_GRAFTING}, Eqs. 3 and 4, published code"),
    Localizer("movement", movement, False, True, f"{_GRAFTING}, Sec. 2.3 (gamma_base)"),
    Localizer("base_gradient", base_gradient, True, False, "https://arxiv.org/abs/2211.15583"),
    Localizer("random", uniform, False, False, f"{_GRAFTING}, Fig. 2 (control)"),
)

LOCALIZERS: Mapping[str, Localizer] = MappingProxyType({row.name: row for row in _ROWS})


def find_localizer(name: str) -> Localizer:
    """Look a localizer up.

    Raises:
        InputError: If there is none of this name; the nearest one is named.
    """
    if name not in LOCALIZERS:
        raise InputError(f"unknown localizer {name!r}: {nearest(name, LOCALIZERS)}")
    return LOCALIZERS[name]


def localize(
    problem: Problem, name: str, *, k: int, steps: int = 12, depth: int | None = None
) -> Ranking:
    """Rank the coordinates of a task by one of the `LOCALIZERS`.

    Args:
        problem: Base, tuned weights and losses.
        name: Which localizer.
        k: The budget that the ranking is learned for; smaller and larger ones can be cut from it.
        steps: Gradient batches to look at, at least 1.
        depth: How many coordinates to rank; None means all.

    Raises:
        InputError: If there is no localizer of this name.
        ValueError: If `k` or `depth` is out of range, or a score is NaN.
    """
    localizer = find_localizer(name)
    total = problem.layout.total
    if not 1 <= k <= total:
        raise ValueError(f"k must be in [1, {total}], got {k}")
    scores = localizer.score(problem, k=k, steps=steps)
    return rank(scores, depth=total if depth is None else min(max(depth, k), total))
