"""The memory that a run will hold, measured before it starts."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from cl_graft.data.encoded_task import EncodedTask
from cl_graft.errors import InputError
from cl_graft.experiments.config import ExperimentConfig
from cl_graft.experiments.memory_estimate import PlanSettings
from cl_graft.grafts.model_state import preserve_modes
from cl_graft.models import TaskModel, make_head
from cl_graft.runtime.batching import sort_by_length, text_lengths
from cl_graft.runtime.seeding import seeded
from cl_graft.strategies.benchmark import TextStream
from cl_graft.training.activation_memory import activation_bytes
from cl_graft.training.settings import FineTuning

__all__ = ["measure_memory", "memory_note", "plan_settings"]

_LABEL = 0


def plan_settings(
    config: ExperimentConfig, *, classes: int | None = None, budget: float = 1.0
) -> PlanSettings:
    """Return the settings of a memory estimate for a run of a config; no data is read.

    The density ``"auto"`` is planned as the largest that it tries.

    Args:
        config: The config.
        classes: Classes of a task; None takes as many as the config names labels, and 2 where it
            names none.
        budget: Share of the graftable coordinates that all tasks together may own, in (0, 1].

    Raises:
        InputError: If nothing says how long rows are.
    """
    length = config.stream.max_length
    if length is None:
        raise InputError("the config leaves max_length to the tasks: say it with --max-length")
    named = [len(own.label_names or ()) for own in config.stream.task_settings.values()]
    grafting = config.grafting
    density = max(grafting.budgets) if grafting.density == "auto" else grafting.density
    return PlanSettings(
        family=config.model.family,
        pooling=config.model.pooling,
        dtype=config.model.dtype,
        precision=config.model.precision,
        batch_size=config.fine_tuning.batch_size,
        micro_batch=config.fine_tuning.micro_batch,
        eval_batch=config.training.eval_batch,
        max_length=length,
        classes=max([2, *named]) if classes is None else classes,
        density=density,
        budget=budget,
        mask_candidates=grafting.mask_candidates or math.ceil(1 / density),
        gradient_checkpointing=config.model.gradient_checkpointing,
        trust_remote_code=config.model.trust_remote_code,
    )


def measure_memory(model: TaskModel, stream: TextStream, settings: FineTuning) -> dict[str, Any]:
    """Measure the model, and the activations that dense training keeps for a backward pass.

    One batch of the longest rows of all tasks runs, as large as those of training.

    Args:
        model: The model, on its device, without heads; it is left as it was.
        stream: The tasks.
        settings: Batch sizes.

    Returns:
        Bytes of ``parameters`` and ``activations``, and the ``rows`` and ``tokens`` of the latter.
    """
    count = min(settings.batch_size, settings.micro_batch or settings.batch_size)
    task, lengths = max(
        ((task, _lengths(task)) for task in stream.tasks), key=lambda pair: int(pair[1].max())
    )
    rows = sort_by_length(lengths)[:count]
    inputs, targets = (tensor[rows].to(model.device) for tensor in task.splits["train"])
    head = make_head(
        model, classes=task.task.num_classes, label_token_ids=task.label_tokens, seed=0
    )
    model.add_head(_LABEL, head)
    try:
        with preserve_modes(model), seeded(0, "memory"):
            model.train()
            activations = activation_bytes(
                model, lambda: nn.functional.cross_entropy(model(inputs, _LABEL), targets)
            )
    finally:
        del model.heads[str(_LABEL)]
    return {
        "parameters": sum(p.numel() * p.element_size() for p in model.parameters()),
        "activations": activations,
        "rows": len(rows),
        "tokens": int(lengths.max()),
    }


def memory_note(memory: dict[str, Any]) -> str:
    """Write what was measured as one line."""
    return (
        f"the model takes {_megabytes(memory['parameters'])}, dense training of {memory['rows']} × "
        f"{memory['tokens']} tokens keeps {_megabytes(memory['activations'])} of activations"
    )


def _lengths(task: EncodedTask) -> Tensor:
    inputs = task.splits["train"][0]
    lengths = text_lengths(inputs)
    return torch.zeros(len(inputs), dtype=torch.int64) if lengths is None else lengths


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
