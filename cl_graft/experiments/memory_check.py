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
from cl_graft.grafts.model_state import keeping_modes
from cl_graft.localization.settings import GraftingSettings
from cl_graft.models import TaskModel, make_head
from cl_graft.runtime.batching import by_length, text_lengths
from cl_graft.runtime.seeding import seeded
from cl_graft.strategies.benchmark import TextStream
from cl_graft.training.activation_memory import activation_bytes

__all__ = ["measure_memory", "memory_note", "plan_settings"]

_LABEL = 0


def plan_settings(config: ExperimentConfig, *, max_length: int | None = None) -> PlanSettings:
    """Return the settings of a memory estimate for a run of a config; no data is read.

    The density ``"auto"`` is planned as the largest that it tries. A task has as many classes as
    the config names labels, and 2 where it names none.

    Args:
        config: The config.
        max_length: Tokens a row; None takes the config's.

    Raises:
        InputError: If nothing says how long rows are.
    """
    length = max_length or config.max_length
    if length is None:
        raise InputError("the config leaves max_length to the tasks: say it with --max-length")
    named = [len(own.label_names or ()) for own in config.task_settings.values()]
    density = max(GraftingSettings().budgets) if config.density == "auto" else config.density
    return PlanSettings(
        family=config.family,
        pooling=config.pooling,
        dtype=config.dtype,
        precision=config.precision,
        batch_size=config.batch_size,
        micro_batch=config.micro_batch,
        eval_batch=config.eval_batch,
        max_length=length,
        classes=max([2, *named]),
        density=density,
        mask_candidates=config.mask_candidates or math.ceil(1 / density),
        gradient_checkpointing=config.gradient_checkpointing,
        trust_remote_code=config.trust_remote_code,
    )


def measure_memory(
    model: TaskModel, stream: TextStream, config: ExperimentConfig
) -> dict[str, Any]:
    """Measure the model, and the activations that dense training keeps for a backward pass.

    One batch of the longest rows of all tasks runs, as large as those of training.

    Args:
        model: The model, on its device, without heads; it is left as it was.
        stream: The tasks.
        config: Batch sizes.

    Returns:
        Bytes of ``parameters`` and ``activations``, and the ``rows`` and ``tokens`` of the latter.
    """
    count = min(config.batch_size, config.micro_batch or config.batch_size)
    task, lengths = max(
        ((task, _lengths(task)) for task in stream.tasks), key=lambda pair: int(pair[1].max())
    )
    rows = by_length(lengths)[:count]
    inputs, targets = (tensor[rows].to(model.device) for tensor in task.splits["train"])
    head = make_head(
        model, classes=task.task.num_classes, label_token_ids=task.label_tokens, seed=0
    )
    model.add_head(_LABEL, head)
    try:
        with keeping_modes(model), seeded(0, "memory"):
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
