"""The table of merging rules, and the merging of grafts by one of them.

It is apart from the rules, which know only vectors.
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
from cl_graft.grafts.graft import Graft
from cl_graft.grafts.merging import rules
from cl_graft.grafts.merging.task_vectors import TaskVectors
from cl_graft.grafts.region import Parameters


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


MERGES: Mapping[str, Merge] = MappingProxyType(
    {
        merge.name: merge
        for merge in (
            Merge(
                "average",
                rules.average,
                "Wortsman et al., 2022, https://arxiv.org/abs/2203.05482",
                scaled=False,
            ),
            Merge(
                "task_arithmetic",
                rules.add_up,
                "Ilharco et al., 2023, https://arxiv.org/abs/2212.04089",
            ),
            Merge("ties", rules.ties, "Yadav et al., 2023, https://arxiv.org/abs/2306.01708"),
            Merge(
                "dare",
                rules.dare,
                "Yu et al., 2024, https://arxiv.org/abs/2311.03099",
                random=True,
            ),
            Merge("magmax", rules.magmax, "Marczak et al., 2024, https://arxiv.org/abs/2407.06322"),
            Merge(
                "consensus", rules.consensus, "Wang et al., 2024, https://arxiv.org/abs/2405.07813"
            ),
            Merge(
                "localize_and_stitch",
                rules.localize_and_stitch,
                "He et al., 2024, https://arxiv.org/abs/2408.13656",
                scaled=False,
            ),
        )
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
        **settings: The rule's own.

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
    """Return the standalone grafts of a bank's tasks, for merging.

    Raises:
        InputError: If an entry has none.
    """
    missing = [entry.task for entry in bank.entries if entry.standalone is None]
    if missing:
        raise InputError(
            f"{', '.join(missing)} of the bank has no standalone graft to merge; learn it with "
            "keep_standalone, and by a localizer that makes a dense run"
        )
    return [entry.standalone for entry in bank.entries if entry.standalone is not None]
