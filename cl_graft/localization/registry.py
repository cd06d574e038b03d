"""The localizers, one row each: a score function, followed by one shared exact selection."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

import torch
from torch import Tensor, nn

from cl_graft.errors import find
from cl_graft.grafts.graft import gather
from cl_graft.grafts.region import Parameters, Region, top_k
from cl_graft.localization.base_gradient import base_gradient, fisher
from cl_graft.localization.child_pruning import child_pruning
from cl_graft.localization.fish import fish, fish_expected
from cl_graft.localization.gain import averaged_gain, path_integral
from cl_graft.localization.hard_concrete import diff_pruning, diff_pruning_sam
from cl_graft.localization.learned_mask import learned_mask, learned_mask_inside
from cl_graft.localization.localizer_inputs import LocalizerInputs
from cl_graft.localization.magnitude import magnitude, tuned_magnitude
from cl_graft.localization.movement import movement
from cl_graft.localization.paper_mask import paper_mask
from cl_graft.localization.random import uniform
from cl_graft.localization.ranking import Ranking, rank, rank_by_tensor, rank_inside
from cl_graft.localization.rules import biases, layer_norms, steepest_biases, steepest_layer_norms
from cl_graft.localization.sam import sam, sam_absolute, sam_squared
from cl_graft.localization.straight_through import straight_through

__all__ = ["LOCALIZERS", "Localizer", "find_localizer", "localize"]

_GRAFTING = "Panigrahi et al., 2023, https://arxiv.org/abs/2302.06600"
_SAM = "Fu et al., 2023, https://arxiv.org/abs/2211.15583"
_FISH = "Sung et al., 2021, https://arxiv.org/abs/2111.09839"


class ScoreFunction(Protocol):
    """Scores the coordinates of a model, higher is better."""

    def __call__(self, inputs: LocalizerInputs, *, k: int, steps: int, depth: int) -> Parameters:
        """Return one float tensor a parameter, in the parameter's shape.

        Args:
            inputs: The base, tuned weights and gradients.
            k: The budget.
            steps: Gradient batches to look at.
            depth: How many coordinates will be ranked; any other may score −∞.
        """
        ...


class InsideFunction(Protocol):
    """Scores some coordinates of a model, higher is better."""

    def __call__(
        self, inputs: LocalizerInputs, candidates: Region, *, k: int, steps: int
    ) -> Tensor:
        """Return one score a candidate, of shape (size of `candidates`,)."""
        ...


@dataclass(frozen=True, kw_only=True)
class Localizer:
    """One way to choose a region.

    Attributes:
        name: As the command line and the settings know it.
        score: The score function.
        gradients: Whether it computes gradients of the task's loss.
        needs_tuned: Whether it looks at the densely fine-tuned weights.
        needs_path: Whether the dense run has to gather `LocalizerInputs.path` for it.
        needs_rows: Whether it asks for single rows, `LocalizerInputs.answers`.
        per_tensor: Whether every tensor gives its share of a region (`rank_by_tensor`); else
            scores are compared through the whole model.
        among: Model and graftable parameters to the coordinates that alone may be chosen; None
            means all.
        inside: The same scores on given candidates alone; None where there is no such function.
        source: Paper and place.
    """

    name: str
    score: ScoreFunction
    gradients: bool
    needs_tuned: bool
    needs_path: bool = False
    needs_rows: bool = False
    per_tensor: bool = False
    among: Callable[[nn.Module, Mapping[str, nn.Parameter]], Region] | None = None
    inside: InsideFunction | None = None
    source: str


_ROWS = (
    Localizer(
        name="learned_mask",
        score=learned_mask,
        inside=learned_mask_inside,
        gradients=True,
        needs_tuned=True,
        source=f"{_GRAFTING}, Eqs. 3 and 4, sound mode",
    ),
    Localizer(
        name="paper_mask",
        score=paper_mask,
        gradients=True,
        needs_tuned=True,
        source=f"{_GRAFTING}, Eqs. 3 and 4, published code",
    ),
    Localizer(
        name="averaged_gain",
        score=averaged_gain,
        gradients=True,
        needs_tuned=True,
        source="Sundararajan et al., 2017, https://arxiv.org/abs/1703.01365, Sec. 3",
    ),
    Localizer(
        name="path_integral",
        score=path_integral,
        gradients=False,
        needs_tuned=True,
        needs_path=True,
        source="Zenke et al., 2017, https://arxiv.org/abs/1703.04200, Eq. 3",
    ),
    Localizer(
        name="movement",
        score=movement,
        gradients=False,
        needs_tuned=True,
        source=f"{_GRAFTING}, Sec. 2.3 (gamma_base)",
    ),
    Localizer(
        name="base_gradient",
        score=base_gradient,
        gradients=True,
        needs_tuned=False,
        source=f"{_SAM}, Theorem 3 (SAM), its paper",
    ),
    Localizer(
        name="sam",
        score=sam,
        gradients=True,
        needs_tuned=False,
        per_tensor=True,
        source=f"{_SAM}, Sec. 4, published code",
    ),
    Localizer(
        name="sam_absolute",
        score=sam_absolute,
        gradients=True,
        needs_tuned=False,
        per_tensor=True,
        source=f"{_SAM}, published code (abs)",
    ),
    Localizer(
        name="sam_squared",
        score=sam_squared,
        gradients=True,
        needs_tuned=False,
        per_tensor=True,
        source=f"{_SAM}, published code (fisher)",
    ),
    Localizer(
        name="fisher",
        score=fisher,
        gradients=True,
        needs_tuned=False,
        source=f"{_FISH}, Sec. 3, with micro-batches for rows",
    ),
    Localizer(
        name="fish",
        score=fish,
        gradients=True,
        needs_tuned=False,
        needs_rows=True,
        source=f"{_FISH}, Eq. 7",
    ),
    Localizer(
        name="fish_expected",
        score=fish_expected,
        gradients=True,
        needs_tuned=False,
        needs_rows=True,
        source=f"{_FISH}, Eq. 6",
    ),
    Localizer(
        name="diff_pruning",
        score=diff_pruning,
        gradients=True,
        needs_tuned=True,
        source="Guo et al., 2021, https://arxiv.org/abs/2012.07463, Secs. 3.1 and 3.3",
    ),
    Localizer(
        name="diff_pruning_sam",
        score=diff_pruning_sam,
        gradients=True,
        needs_tuned=True,
        per_tensor=True,
        source=f"{_SAM}, published code (DiffPruning)",
    ),
    Localizer(
        name="child_pruning",
        score=child_pruning,
        gradients=True,
        needs_tuned=False,
        per_tensor=True,
        source=f"{_SAM}, published code (ChildPruning)",
    ),
    Localizer(
        name="straight_through",
        score=straight_through,
        gradients=True,
        needs_tuned=True,
        per_tensor=True,
        source="Kang et al., 2022, https://arxiv.org/abs/2303.14962, Sec. 3.2",
    ),
    Localizer(
        name="magnitude",
        score=magnitude,
        gradients=False,
        needs_tuned=False,
        per_tensor=True,
        source=f"{_SAM}, Sec. 2.2 (MagPruning)",
    ),
    Localizer(
        name="tuned_magnitude",
        score=tuned_magnitude,
        gradients=False,
        needs_tuned=True,
        per_tensor=True,
        source=f"{_SAM}, published code (MagPruning)",
    ),
    Localizer(
        name="bias_only",
        score=steepest_biases,
        gradients=True,
        needs_tuned=False,
        among=biases,
        source="Ben Zaken et al., 2022, https://arxiv.org/abs/2106.10199 (BitFit)",
    ),
    Localizer(
        name="layer_norm_only",
        score=steepest_layer_norms,
        gradients=True,
        needs_tuned=False,
        among=layer_norms,
        source="Qi et al., 2022, https://arxiv.org/abs/2211.08682",
    ),
    Localizer(
        name="random",
        score=uniform,
        gradients=False,
        needs_tuned=False,
        source=f"{_GRAFTING}, Fig. 2 (control)",
    ),
)

LOCALIZERS: Mapping[str, Localizer] = MappingProxyType({row.name: row for row in _ROWS})


def find_localizer(name: str) -> Localizer:
    """Look a localizer up.

    Raises:
        InputError: If there is none of this name; the nearest one is named.
    """
    return find(LOCALIZERS, name, missing="unknown localizer")


def localize(
    inputs: LocalizerInputs,
    name: str,
    *,
    k: int,
    steps: int = 12,
    depth: int | None = None,
    candidates: int | None = None,
) -> Ranking:
    """Rank the coordinates of a task by one of the `LOCALIZERS`.

    Args:
        inputs: The base, tuned weights and gradients.
        name: Which localizer.
        k: The budget that the ranking is learned for; smaller and larger ones can be cut from it.
        steps: Gradient batches to look at, at least 1.
        depth: How many coordinates to rank; None means all.
        candidates: Let only this many coordinates, those that moved most, be chosen, where the
            localizer can score them alone; None means all.

    Raises:
        InputError: If there is no localizer of this name.
        ValueError: If `k` or `depth` is out of range, `inputs` lack what the localizer looks
            at, or a score is NaN.

    Examples:
        >>> import torch
        >>> model = nn.Linear(2, 2)
        >>> tuned = {name: p.detach().clone() for name, p in model.named_parameters()}
        >>> tuned["bias"] += torch.tensor([0.1, 0.2])
        >>> inputs = LocalizerInputs(
        ...     model=model,
        ...     parameters=dict(model.named_parameters()),
        ...     tuned=tuned,
        ...     losses=lambda step: [],
        ...     dev_score=lambda: 0.0,
        ...     train_score=lambda: 0.0,
        ...     seed=0,
        ... )
        >>> ranking = localize(inputs, "movement", k=2)
        >>> ranking.top(1).index.tolist(), ranking.top(2).index.tolist()
        ([5], [4, 5])
    """
    localizer = find_localizer(name)
    among = localizer.among(inputs.model, inputs.parameters) if localizer.among else None
    total = inputs.layout.total if among is None else len(among)
    if not 1 <= k <= total:
        raise ValueError(f"k must be in [1, {total}], got {k}")
    if localizer.needs_tuned and not inputs.tuned:
        raise ValueError(f"{name} needs densely fine-tuned weights: there are none")
    if localizer.needs_path and not inputs.path:
        raise ValueError(f"{name} needs the path of the dense run: none was gathered")
    if localizer.needs_rows and inputs.answers is None:
        raise ValueError(f"{name} needs the answers to single rows: there are none")
    if localizer.gradients and torch.is_inference_mode_enabled():
        raise RuntimeError(
            f"{name} looks at gradients, but was called under torch.inference_mode(), where there "
            "are none; call it outside of the inference mode"
        )
    depth = total if depth is None else min(max(depth, k), total)
    if candidates is not None and localizer.inside is not None:
        moved = movement(inputs, k=k, steps=steps, depth=depth)
        inside = top_k(moved, min(max(candidates, k), total))
        scores = localizer.inside(inputs, inside, k=k, steps=steps)
        return rank_inside(inside, scores, depth=min(depth, len(inside)))
    scores = localizer.score(inputs, k=k, steps=steps, depth=depth)
    if among is not None:
        return rank_inside(among, gather(scores, among).values, depth=depth)
    return (rank_by_tensor if localizer.per_tensor else rank)(scores, depth=depth)
