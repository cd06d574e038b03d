"""The training of a region alone, without a strategy around it.

It is "graft re-training" of Panigrahi et al., 2023, Table 1 (https://arxiv.org/abs/2302.06600), and
BitFit on the region of all biases. In a stream `GraftingPlugin` trains a region in the loop of its
strategy.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

from torch import Tensor

from cl_graft.grafts.graft import Graft, extract, write_
from cl_graft.grafts.model_state import replace_parameters
from cl_graft.grafts.region import Parameters, Region
from cl_graft.runtime.error_context import in_phase
from cl_graft.runtime.seeding import derive
from cl_graft.training.fine_tuning_settings import FineTuning, with_rate_schedule
from cl_graft.training.learnable_task import LearnableTask
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

    Args:
        task: The task, on a model at its base, which is put back there.
        region: Coordinates that train beside the head.
        settings: Steps, batch size, optimiser, learning rate, weight decay (of all that trains),
            clipping and evaluations; momentum, L1 penalty and Mixout are left out.
        head: First values of the head, by name.
        seed: Seed of the random choices.
        head_lr: Learning rate of the head, > 0; None takes that of the region.

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
        found = task.fine_tune(
            {_VECTOR: live.vector, **task.head},
            settings,
            seed=derive(seed, task.content, "re-training"),
            on_step=lambda *_: live.write_(),
            through=live.gathered,
            rates={} if head_lr is None else dict.fromkeys(task.head, head_lr),
            phase="region training",
        )
    values = found.tensors.pop(_VECTOR).to("cpu", base.values.dtype)
    return Graft(region, values), found.tensors
