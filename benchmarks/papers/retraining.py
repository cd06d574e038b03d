"""Regions of single tasks trained again, with the schedules of the papers' experiments.

Each is trained once and kept in the bench's cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any

from torch import Tensor

from cl_graft.grafts.graft import Graft, snapshot
from cl_graft.grafts.hashing import hash_tensors
from cl_graft.grafts.region import Region
from cl_graft.lab.baselines.own_values import RATES
from cl_graft.models.graftable import weight_scale
from cl_graft.settings.schedule_of_task import train_candidates
from cl_graft.training.graft_retraining import train_region
from papers.bench import Bench, Outcome

_REGION_RATES = {"sgd": (0.01, 0.1, 1.0), "adamw": (0.0003, 0.001, 0.01)}
"""Learning rates of regions, beside the config's, of which dev chooses one where the config has a
grid; the grafting paper tells no rate."""

_BITFIT_RATE = 2e-3


def retrain_region(
    bench: Bench, label: int, region: Region, *, anew: bool = False, **changes: Any
) -> tuple[Graft, dict[str, Tensor]]:
    """Train a region of a task alone from the base, and a head from its first values.

    The config's optimiser of regions does it without weight decay at its rate for regions or, where
    it has a grid, at the rate that dev chooses.
    """
    task, schedule, scale = bench.task(label), bench.schedule(label), weight_scale(bench.model)
    plan = bench.config.region_schedule(schedule, coordinates=len(region), scale=scale)
    if bench.config.training.grid and "lr" not in changes:
        grid = sorted({*_REGION_RATES[plan.optimizer], plan.lr})
        rates = [{**changes, "lr": rate} for rate in grid]
        return _best_on_dev(bench, label, region, rates, anew=anew)
    settings = replace(plan, **changes)
    if settings.optimizer == "adamw":
        settings = replace(settings, lr_decay="linear")
    head_lr = bench.config.grafting.head_lr
    first = task.to_cache(snapshot(task.head))
    what = hash_tensors({"region": region.index, **first})

    def train() -> Outcome:
        graft, head = train_region(
            task, region, settings, head=snapshot(task.head), seed=bench.seed, head_lr=head_lr
        )
        return {"values": graft.values, **task.to_cache(head)}, {}

    recipe = {**asdict(settings), "head_lr": head_lr, "what": what}
    kept, _ = bench.get_or_make("retrained", task.identity, recipe, train, anew=anew)
    return Graft(region, kept["values"]), task.from_cache(kept, task.head)


def bitfit(bench: Bench, label: int) -> tuple[Graft, dict[str, Tensor]]:
    """Train all biases of a task alone from the base, and a head, as the other peers are.

    Ben Zaken et al., 2022, https://arxiv.org/abs/2106.10199.
    """
    return _best_on_dev(bench, label, bench.biases(label), peer_plans(bench, (_BITFIT_RATE,)))


def peer_plans(bench: Bench, rates: Sequence[float]) -> list[dict[str, Any]]:
    """Return how peers are trained: by AdamW, of whose rates dev chooses one."""
    rates = RATES if bench.config.training.grid else rates
    return [{"optimizer": "adamw", "lr": rate, "weight_decay": 0.0} for rate in rates]


def _best_on_dev(
    bench: Bench, label: int, region: Region, plans: Iterable[dict[str, Any]], *, anew: bool = False
) -> tuple[Graft, dict[str, Tensor]]:
    """Train a region by several plans, each changes to the schedule, and take the best on dev."""
    found = train_candidates(
        plans, lambda plan: retrain_region(bench, label, region, anew=anew, **plan)
    )
    return max(
        (one for _, one in found),
        key=lambda one: bench.graft_answers(label, *one, split="valid").score,
    )
