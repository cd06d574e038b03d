"""The bytes that a task may take in a bank with a budget for all its tasks.

Every task gets an equal share of the budget, and the bytes that earlier tasks did not use of
theirs. So with `density="auto"` a hard task gets what easy ones did not need.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch

from cl_graft.errors import InputError
from cl_graft.grafts.bank import Entry, GraftBank, RecordedBatch, pick_recorded
from cl_graft.grafts.graft import Graft
from cl_graft.grafts.hashing import environment
from cl_graft.grafts.region import Region
from cl_graft.localization.grafting_settings import GraftingSettings
from cl_graft.runtime.byte_sizes import largest_within
from cl_graft.storage.elias_fano import packed_size
from cl_graft.storage.entry_file import pack_entry
from cl_graft.strategies.heads import copy_head_state
from cl_graft.training.examples import Examples
from cl_graft.training.learnable_task import LearnableTask

__all__ = ["coordinates_within", "recorded_inputs"]

_RECORDED_ROWS = 8
_METADATA_BYTES = 1024
"""Bytes of an entry's metadata that are known only after training, at most."""

_NONE: Mapping[str, object] = MappingProxyType({})


def coordinates_within(
    bank: GraftBank,
    task: LearnableTask,
    settings: GraftingSettings,
    *,
    name: str,
    label: int,
    tasks_left: int,
    builds_on: tuple[int, ...] | None = None,
    metadata: Mapping[str, object] = _NONE,
) -> int | None:
    """Return how many coordinates the region of the next task may have.

    Args:
        bank: Entries so far.
        task: The next task.
        settings: Settings of the task; only `bank_bytes` and `bank_tasks` are read.
        name: Name of the task.
        label: Label of the task.
        tasks_left: Tasks of the stream that are still to be learned, this one among them.
        builds_on: Positions of the earlier entries that it builds on; None means all of them in
            prefix mode, and none in isolated mode.
        metadata: Metadata of its entry that are known before training, such as its labels' names.

    Returns:
        The number, at least 1; None where the settings give the bank no budget.

    Raises:
        InputError: If head, recorded batch and names of the task alone take more than its share.
    """
    if settings.bank_bytes is None:
        return None
    tasks = settings.bank_tasks or len(bank) + tasks_left
    later = max(0, tasks - len(bank) - 1)
    used = sum(len(pack_entry(entry, bank)) for entry in bank.entries)
    left = settings.bank_bytes - used
    share = left - later * min(settings.bank_bytes // tasks, max(0, left) // (later + 1))
    value_bytes = getattr(torch, bank.base.dtype).itemsize
    one = _bytes_of_one_coordinate(
        bank, task, name=name, label=label, builds_on=builds_on, metadata=metadata
    )
    total = bank.layout.total

    def size(coordinates: int) -> int:
        # Coordinates that earlier tasks own are packed in a list of their own, which costs up to
        # one more bit a coordinate.
        apart = 0 if settings.avoid_owned else coordinates // 8
        more = packed_size(coordinates, total) - packed_size(1, total)
        return one + more + apart + (coordinates - 1) * value_bytes

    if size(1) > share:
        raise InputError(
            f"task {name!r} needs {size(1):,} bytes for its head, its recorded batch and its names "
            f"alone, and {max(0, share):,} are left for it: of bank_bytes="
            f"{settings.bank_bytes:,} earlier tasks take {used:,} ({len(bank)}), and later ones "
            f"have a share ({later}); raise bank_bytes{', or lower bank_tasks' if later else ''}"
        )
    return largest_within(share, size, least=1, most=total)


def recorded_inputs(dev: Examples) -> Any:
    """Return the dev rows that an entry records to be verified with, encoded."""
    count = min(_RECORDED_ROWS, len(dev))
    # Evenly spaced, as rows in the order of their lengths would be all alike at one end.
    places: Sequence[int] = [place * len(dev) // count for place in range(count)]
    return dev.batch(places)[0]


def _bytes_of_one_coordinate(
    bank: GraftBank,
    task: LearnableTask,
    *,
    name: str,
    label: int,
    builds_on: tuple[int, ...] | None,
    metadata: Mapping[str, object],
) -> int:
    """Return the bytes of an entry whose region has one coordinate."""
    inputs = recorded_inputs(task.dev)
    task.model.eval()
    with torch.no_grad():
        logits = pick_recorded(task.forward(inputs.to(task.device)).float().cpu(), inputs)
    entry = Entry(
        task=name,
        label=label,
        owned=Graft(
            Region.of(bank.layout, [0]), torch.zeros(1, dtype=getattr(torch, bank.base.dtype))
        ),
        owned_before=Region.empty(bank.layout),
        head=copy_head_state(task.model, label),
        weights_sha256="0" * 64,
        recorded_batch=RecordedBatch(inputs, logits, environment(task.device)),
        metadata=metadata,
        builds_on=builds_on,
    )
    return len(pack_entry(bank.place(entry), bank)) + _METADATA_BYTES
