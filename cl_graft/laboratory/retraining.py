"""Graft re-training: a region trained alone from the base, without a stream around it.

The "graft re-training" of Panigrahi et al., 2023, Table 1 (https://arxiv.org/abs/2302.06600), and,
on the region of all biases, BitFit. In a stream `GraftingPlugin` does it; here is the same for a
single task: SGD or AdamW on the region's vector and the head, the best point on dev kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from typing import Any

from torch import Tensor

from cl_graft.experiments.schedule import converging, region_schedule
from cl_graft.grafts.graft import Graft, extract, snapshot, write_
from cl_graft.grafts.hashing import hash_tensors
from cl_graft.grafts.model_state import holding
from cl_graft.grafts.region import Parameters, Region
from cl_graft.laboratory.bench import Bench, Outcome
from cl_graft.runtime.error_context import in_phase
from cl_graft.runtime.seeding import derive
from cl_graft.strategies.baselines.own_values import RATES
from cl_graft.training.fine_tuning import FineTuning
from cl_graft.training.learnable_task import LearnableTask
from cl_graft.training.region_parameters import RegionParameters

__all__ = ["bitfit", "peer_plans", "retrain", "retrained"]

_BITFIT_RATE = 2e-3
_REGION_RATES = (0.01, 0.1, 1.0)
"""Beside the config's, of which dev chooses one where it has a grid; the paper tells no rate."""
_VECTOR = "region"


def retrained(
    bench: Bench, label: int, region: Region, *, anew: bool = False, **changes: Any
) -> tuple[Graft, dict[str, Tensor]]:
    """Train a region of a task alone from the base, and a head from its first values.

    SGD without weight decay does it at the config's rate for regions or, where it has a grid, at
    the rate that dev chooses.

    Args:
        bench: Where the task is.
        label: Which task.
        region: What trains.
        anew: Whether to train whatever the cache holds, as when it is timed.
        **changes: Fields of the schedule.
    """
    if bench.config.grid and "lr" not in changes:
        rates = [{**changes, "lr": r} for r in sorted({*_REGION_RATES, bench.config.region_lr})]
        return _best_on_dev(bench, label, region, rates, anew=anew)
    settings = region_schedule(bench.config, bench.schedule(label))
    settings = replace(settings, **{"optimizer": "sgd", **changes})
    decay = None if settings.optimizer == "adamw" else bench.config.region_decay
    task = bench.problem(label)
    first = task.shelved(snapshot(task.head))
    what = hash_tensors({"region": region.index, **first})

    def trained() -> Outcome:
        graft, head = retrain(
            task, region, settings, head=snapshot(task.head), seed=bench.seed, decay=decay
        )
        return {"values": graft.values, **task.shelved(head)}, {}

    recipe = {**asdict(settings), "decay": decay, "what": what}
    kept, _ = bench.remembered("retrained", task.identity, recipe, trained, anew=anew)
    return Graft(region, kept["values"]), task.from_shelf(kept, task.head)


def bitfit(bench: Bench, label: int) -> tuple[Graft, dict[str, Tensor]]:
    """Train all biases of a task alone from the base, and a head, as the other peers are.

    Ben Zaken et al., 2022, https://arxiv.org/abs/2106.10199.

    Args:
        bench: Where the task is.
        label: Which task.
    """
    return _best_on_dev(bench, label, bench.biases(label), peer_plans(bench, (_BITFIT_RATE,)))


def peer_plans(bench: Bench, rates: Sequence[float]) -> list[dict[str, Any]]:
    """Return how peers are trained: by AdamW, of whose rates dev chooses one.

    Args:
        bench: Where the config is.
        rates: Where the config has no grid; there are more where it has one.
    """
    rates = RATES["lr"] if bench.config.grid else rates
    return [{"optimizer": "adamw", "lr": rate, "weight_decay": 0.0} for rate in rates]


def _best_on_dev(
    bench: Bench,
    label: int,
    region: Region,
    plans: Iterable[dict[str, Any]],
    *,
    anew: bool = False,
) -> tuple[Graft, dict[str, Tensor]]:
    """Train a region by several plans, each changes to the schedule, and take the best on dev."""
    found = converging(plans, lambda plan: retrained(bench, label, region, anew=anew, **plan))
    return max(
        (one for _, one in found),
        key=lambda one: bench.graft_answers(label, *one, split="valid").score,
    )


def retrain(
    task: LearnableTask,
    region: Region,
    settings: FineTuning,
    *,
    head: Parameters,
    seed: int,
    decay: bool | None = True,
) -> tuple[Graft, dict[str, Tensor]]:
    """Train a region and the head of a task on a model at its base, which is put back there.

    Args:
        task: The task.
        region: What trains beside the head.
        settings: Steps, batch size, optimiser, learning rate, weight decay (of all that trains),
            clipping and looks at dev; momentum, L1 penalty and Mixout are the dense run's alone.
        head: The head's first values.
        seed: Every random choice is a function of it.
        decay: Whether the learning rate falls linearly to 0; None means with AdamW alone.

    Returns:
        The region's values and the head's.

    Raises:
        DivergedError: If a loss or a value becomes NaN or infinite.
    """
    own = derive(seed, task.content, "re-training")
    settings = replace(settings, decay="all", momentum=0.0, l1=0.0, mixout=0.0)
    base = extract(task.model, region)
    with ExitStack() as after:
        after.enter_context(in_phase("region training"))
        after.callback(write_, task.model, base)
        after.enter_context(holding(task.head, head))
        live = after.enter_context(RegionParameters(task.model, region))
        found = task.fine_tune(
            {_VECTOR: live.vector, **task.head},
            settings,
            seed=own,
            on_step=lambda *_: live.write_(),
            through=live.gathered,
            falling=decay,
            phase="region training",
        )
    values = found.tensors.pop(_VECTOR).to("cpu", base.values.dtype)
    return Graft(region, values), found.tensors
