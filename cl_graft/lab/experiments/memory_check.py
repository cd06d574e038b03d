"""The memory of the model and of one training step, measured before a run starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from cl_graft.data.encoded_task import EncodedTask
from cl_graft.errors import DivergedError, InputError, OutOfMemory, first_line
from cl_graft.grafts.model_state import preserve_modes
from cl_graft.kinds.task_head import make_task_head
from cl_graft.metrics import task_loss
from cl_graft.models import TaskModel, graftable_parameters
from cl_graft.runtime.batching import sort_by_length, text_lengths
from cl_graft.runtime.error_context import in_phase
from cl_graft.runtime.seeding import seeded
from cl_graft.strategies.benchmark import TextStream
from cl_graft.training.activation_memory import activation_bytes
from cl_graft.training.fine_tuning_settings import FineTuning

__all__ = ["measure_memory", "memory_note"]

_LABEL = 0


def measure_memory(model: TaskModel, stream: TextStream, settings: FineTuning) -> dict[str, Any]:
    """Measure the model, and the activations that dense training keeps for a backward pass.

    One batch of the longest rows of all tasks runs, as large as those of training; before it one
    row runs forward and backward, so that what cannot train says so before anything is computed.

    Args:
        model: The model, on its device, without heads; it is left as it was.
        stream: The tasks.
        settings: Batch sizes.

    Returns:
        Bytes of ``parameters`` and ``activations``, and the ``rows`` and ``tokens`` of the latter.

    Raises:
        InputError: If the model cannot take a step with these settings.
    """
    count = min(settings.batch_size, settings.micro_batch or settings.batch_size)
    task, lengths = max(
        ((task, _lengths(task)) for task in stream.tasks), key=lambda pair: int(pair[1].max())
    )
    rows = sort_by_length(lengths)[:count]
    inputs, targets = (tensor[rows].to(model.device) for tensor in task.splits["train"])
    head = make_task_head(model, task.task, label_tokens=task.label_tokens, seed=0)
    model.add_head(_LABEL, head)
    try:
        with preserve_modes(model), seeded(0, "memory"):
            model.train()
            _try_step(model, lambda: task_loss(model(inputs[:1], _LABEL), targets[:1]))
            activations = activation_bytes(model, lambda: task_loss(model(inputs, _LABEL), targets))
    finally:
        del model.heads[str(_LABEL)]
    return {
        "parameters": sum(p.nbytes for p in model.parameters()),
        "activations": activations,
        "rows": len(rows),
        "tokens": int(lengths.max()),
    }


def _try_step(model: TaskModel, loss: Callable[[], Tensor]) -> None:
    """Take the gradient of the lowest graftable parameter, which passes through all blocks."""
    lowest = next(iter(graftable_parameters(model).values()))
    try:
        with in_phase("dense fine-tuning"):
            torch.autograd.grad(loss(), lowest, allow_unused=True)
    except (InputError, DivergedError, OutOfMemory):
        raise
    except Exception as error:  # whatever the code of an architecture raises
        again = " and gradient checkpointing" if model.recomputes else ""
        raise InputError(
            f"{model.name!r} cannot take a training step on {model.device} with dtype "
            f"{str(lowest.dtype).removeprefix('torch.')}, precision {model.precision}{again}: "
            f"{first_line(error)}"
        ) from error


def memory_note(memory: dict[str, Any]) -> str:
    """Describe the measured memory in one line."""
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
