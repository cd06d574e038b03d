"""The training of a region without a strategy ("graft re-training" of Panigrahi et al., 2023)."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

from torch import Tensor

from cl_graft.grafts.graft import Graft, extract, write_
from cl_graft.grafts.model_state import replace_parameters
from cl_graft.grafts.region import Parameters, Region
from cl_graft.runtime.error_context import in_phase
from cl_graft.runtime.seeding import derive
from cl_graft.training.fine_tuning_settings import FineTuning
from cl_graft.training.learnable_task import LearnableTask
from cl_graft.training.rate_schedule import with_rate_schedule
from cl_graft.training.region_parameters import RegionParameters

_VECTOR = "region"


def train_region(
    task: LearnableTask,
    region: Region,
    settings: FineTuning,
    *,
    head: Parameters,
    seed: int,
    head_lr: float | None = None,
) -> tuple[Graft, dict[str, Tensor]]:
    """Train a region and a task's head, and choose the best step on dev.

    Of the settings, momentum, L1 penalty and Mixout are left out. The model is put back to its
    base.

    Returns:
        The values of the region, and of the head by name.

    Raises:
        DivergedError: If a loss or a value becomes NaN or infinite.
    """
    settings = replace(settings, decay="all", momentum=0.0, l1=0.0, mixout=0.0)
    settings = with_rate_schedule(settings, is_region=True)
    base = extract(task.model, region)
    with ExitStack() as until_done:
        until_done.enter_context(in_phase("region training"))
        until_done.callback(write_, task.model, base)
        until_done.enter_context(replace_parameters(task.head, head))
        live = until_done.enter_context(RegionParameters(task.model, region))
        outcome = task.fine_tune(
            {_VECTOR: live.vector, **task.head},
            settings,
            seed=derive(seed, task.content, "re-training"),
            on_step=lambda *_: live.write_(),
            through=live.gathered,
            rates={} if head_lr is None else dict.fromkeys(task.head, head_lr),
            phase="region training",
        )
    values = outcome.tensors.pop(_VECTOR).to("cpu", base.values.dtype)
    return Graft(region, values), outcome.tensors
