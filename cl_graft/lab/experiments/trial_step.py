"""A trial step before a run starts: what cannot train is refused before hours are spent."""

from __future__ import annotations

import torch
from torch import Tensor

from cl_graft.data.encoded_task import EncodedTask
from cl_graft.errors import DivergedError, InputError, OutOfMemory, first_line
from cl_graft.grafts.model_state import preserve_modes
from cl_graft.kinds.text_task import make_task_head
from cl_graft.metrics import task_loss
from cl_graft.models import TaskModel, graftable_parameters
from cl_graft.runtime.batching import sort_by_length, text_lengths
from cl_graft.runtime.error_context import in_phase
from cl_graft.runtime.seeding import seeded
from cl_graft.strategies.benchmark import TextStream
from cl_graft.training.fine_tuning_settings import FineTuning

_LABEL = 0


def try_step(model: TaskModel, stream: TextStream, settings: FineTuning) -> None:
    """Compute a batch of the longest rows of all tasks forward and backward.

    Args:
        model: The model, on its device, without heads; it is left as it was.
        stream: The tasks.
        settings: Batch sizes.

    Raises:
        InputError: If the model cannot take a step with these settings.
        OutOfMemory: If there is too little memory for it.
    """
    count = min(settings.batch_size, settings.micro_batch or settings.batch_size)
    task, lengths = max(
        ((task, _lengths(task)) for task in stream.tasks), key=lambda pair: int(pair[1].max())
    )
    rows = sort_by_length(lengths)[:count]
    inputs, targets = (tensor[rows].to(model.device) for tensor in task.splits["train"])
    # The gradient of the lowest parameter passes through all blocks.
    lowest = next(iter(graftable_parameters(model).values()))
    model.add_head(_LABEL, make_task_head(model, task.task, label_tokens=task.label_tokens, seed=0))
    try:
        with preserve_modes(model), seeded(0, "memory"), in_phase("dense fine-tuning"):
            model.train()
            loss = task_loss(model(inputs, _LABEL), targets)
            torch.autograd.grad(loss, lowest, allow_unused=True)
    except (InputError, DivergedError, OutOfMemory):
        raise
    except Exception as error:  # whatever the code of an architecture raises
        again = " and gradient checkpointing" if model.recomputes else ""
        raise InputError(
            f"{model.name!r} cannot take a training step on {model.device} with dtype "
            f"{str(lowest.dtype).removeprefix('torch.')}, precision {model.precision}{again}: "
            f"{first_line(error)}"
        ) from error
    finally:
        del model.heads[str(_LABEL)]


def _lengths(task: EncodedTask) -> Tensor:
    inputs = task.splits["train"][0]
    lengths = text_lengths(inputs)
    return torch.zeros(len(inputs), dtype=torch.int64) if lengths is None else lengths
