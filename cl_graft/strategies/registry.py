"""The strategies of experiments, one row each: what it is, where it comes from, how it is built."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from cl_graft.errors import find
from cl_graft.strategies.baselines import (
    bounds,
    distillation,
    inserted,
    low_rank,
    masks,
    packnet,
    penalties,
    prototypes,
    rehearsal,
)
from cl_graft.strategies.graft_rows import ROWS as GRAFTING
from cl_graft.strategies.merged_rows import ROWS as MERGING
from cl_graft.strategies.registered import StrategyRow, listed_only
from cl_graft.strategies.routed_rows import ROWS as ROUTED

__all__ = ["STRATEGIES", "available", "find_strategy"]

_AVALANCHE = "Avalanche 0.6"

_CANNOT_RUN = (
    listed_only(
        "bic",
        "rehearsal",
        "Wu et al., 2019, https://arxiv.org/abs/1905.13260; Avalanche's BiC",
        broken=f"{_AVALANCHE}'s BiC passes MultiStepLR an argument that torch has removed",
    ),
    listed_only(
        "icarl",
        "rehearsal",
        "Rebuffi et al., 2017, https://arxiv.org/abs/1611.07725; Avalanche's ICaRL",
        broken=f"{_AVALANCHE}'s ICaRL needs a benchmark of its older class-incremental kind",
    ),
    listed_only(
        "gss",
        "rehearsal",
        "Aljundi et al., 2019, https://arxiv.org/abs/1903.08671; Avalanche's GSS_greedy",
        broken=f"{_AVALANCHE}'s GSS_greedy keeps inputs as floats, which are no token ids, and "
        "knows no task labels",
    ),
    listed_only(
        "avalanche_packnet",
        "isolation",
        "Mallya and Lazebnik, 2018, https://arxiv.org/abs/1711.05769; Avalanche's PackNet",
        broken=f"{_AVALANCHE}'s PackNet refuses modules with parameters other than Linear and "
        "convolutions: a transformer's embeddings and LayerNorms",
    ),
)

STRATEGIES: Mapping[str, StrategyRow] = MappingProxyType(
    {
        row.name: row
        for row in (
            *GRAFTING,
            *ROUTED,
            *MERGING,
            *bounds.ROWS,
            *penalties.ROWS,
            *distillation.ROWS,
            *rehearsal.ROWS,
            *prototypes.ROWS,
            *inserted.ROWS,
            *low_rank.ROWS,
            *packnet.ROWS,
            *masks.ROWS,
            *_CANNOT_RUN,
        )
    }
)


def available(
    *, encoder: bool = True, ablations: bool = False, scenario: str = "task"
) -> list[str]:
    """Return the names of the strategies that can run here.

    Args:
        encoder: On an encoder, or on other models.
        ablations: The ablations of grafting, or all others.
        scenario: In which form of a stream.
    """
    return [
        name
        for name, row in STRATEGIES.items()
        if not row.unavailable
        and (encoder or not row.encoders_only)
        and (row.family == "ablation") == ablations
        and scenario not in row.refuses
    ]


def find_strategy(name: str) -> StrategyRow:
    """Look a strategy up.

    Raises:
        InputError: If there is none of this name; the nearest one is named.
    """
    return find(STRATEGIES, name, missing="unknown strategy")
