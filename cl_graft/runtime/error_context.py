"""Context of errors in training: the phase, the task, and the setting to lower."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from cl_graft.errors import DivergedError, NotFinite, OutOfMemory

_SMALLER_STEPS = "lower micro_batch, then batch_size or max_length, or set gradient_checkpointing"
_LOWER = {
    "loading": "take a smaller model, or run where there is more memory",
    "dense fine-tuning": f"{_SMALLER_STEPS}; without a dense run (preset fast) least is needed",
    "localization": "lower micro_batch, mask_candidates or max_length; movement and path_integral "
    "need no gradients",
    "region training": _SMALLER_STEPS,
    "training": _SMALLER_STEPS,
    "evaluation": "lower eval_batch or max_length",
}
"""Settings to lower, by phase."""

_SIGNS = (
    "can't allocate memory",  # torch's CPU allocator
    "cannot allocate memory",  # the system's words for it
    "not enough memory",
    "out of memory",
    "cublas_status_alloc_failed",
)


@contextmanager
def in_phase(phase: str) -> Iterator[None]:
    """Turn running out of memory in a `with` block into `OutOfMemory`, which names the phase.

    It says how much was asked for, and what to lower. `NotFinite` gets the phase, too.
    """
    lower = _LOWER[phase]
    try:
        yield
    except NotFinite as error:
        explained = NotFinite(f"{phase}: {error}")
        explained.task = error.task
        raise explained from error
    except (MemoryError, RuntimeError, OSError) as error:
        if not _is_shortage(error):
            raise
        asked = str(error).strip().splitlines()
        reason = f" ({asked[0][:160]})" if asked else ""
        raise OutOfMemory(
            f"out of memory in {phase}{reason}: {lower}; `cl-graft plan` says what each phase takes"
        ) from error


@contextmanager
def in_task(task: str) -> Iterator[None]:
    """Let errors of training in a `with` block name the task, unless one is named already."""
    try:
        yield
    except (DivergedError, OutOfMemory) as error:
        if error.task is not None:
            raise
        explained = type(error)(f"task {task!r}: {error}")
        explained.task = task
        raise explained from error


def _is_shortage(error: Exception) -> bool:
    """Tell whether an error is about memory, and nobody has said so yet."""
    if isinstance(error, OutOfMemory):
        return False
    text = str(error).lower()
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or any(
        sign in text for sign in _SIGNS
    )
