"""The disk space that a run will need, checked before it trains.

A run does not start without space for the bank, the results and the curves. The cache is optional:
an outcome for which there is no space is computed and not kept.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from cl_graft.errors import CannotWrite
from cl_graft.localization import find_localizer
from cl_graft.localization.grafting_settings import GraftingSettings
from cl_graft.models import TaskModel, graftable_parameters
from cl_graft.runtime.byte_sizes import decimal_bytes
from cl_graft.storage import free_bytes
from cl_graft.storage.cache_folder import DirectoryCache
from cl_graft.storage.elias_fano import packed_size
from cl_graft.strategies.benchmark import TextStream
from cl_graft.strategies.method import Method
from cl_graft.training.fine_tuning import FineTuning

__all__ = ["check_disk_space", "reserve_disk_space"]

logger = logging.getLogger(__name__)

_POINT = 200
"""Bytes of a point in a TensorBoard file, and of a number in `results.json`, at most."""

_PICTURE = 100_000
"""Bytes of a picture in a TensorBoard file, about."""

_NAMES = 16_384
"""Bytes of the names, hashes and metadata of an entry, and of the headers of its files, at most."""


def reserve_disk_space(
    method: Method,
    stream: TextStream,
    model: TaskModel,
    *,
    grafting: GraftingSettings,
    schedules: Sequence[Sequence[FineTuning]],
    folder: Path,
    cache: DirectoryCache,
) -> None:
    """Make sure that there is space for what a run must write, and reserve it from the cache.

    Args:
        method: The run's strategy.
        stream: The tasks.
        model: The model.
        grafting: Settings of grafting.
        schedules: Dense schedules of each task; dev chooses among several.
        folder: Folder of the run.
        cache: Cache of the run, which gets `DirectoryCache.spare`.

    Raises:
        CannotWrite: If there is too little space.
    """
    tensors = graftable_parameters(model).values()
    total = sum(tensor.numel() for tensor in tensors)
    size = max(tensor.element_size() for tensor in tensors)
    localizer = find_localizer(grafting.localizer)
    count, steps = len(stream.tasks), sum(choices[0].steps for choices in schedules)
    curves = _POINT * (6 * steps + 5 * count * (count + 5)) + _PICTURE * 3 * count
    needs, kept = {"results and curves": curves}, 0
    if method.stored_as == "entry":
        k = min(grafting.coordinates(total), total)
        graft = (k * size + 2 * packed_size(k, total)) * (2 if grafting.keep_standalone else 1)
        needs["bank"] = 0
        for encoded in stream.tasks:
            classes = max(1, encoded.task.num_outputs)
            head = 4 * classes * (model.hidden_size + 1)
            recorded_batch = 8 * (5 * encoded.splits["train"][0].shape[-1] + 4 * classes)
            needs["bank"] += graft + head + recorded_batch + _NAMES
        ranked = min(total, max(20 * k, total // 20))
        ranked = min(ranked, grafting.candidates(total, k=k) or ranked)
        kept += count * (8 * ranked + (4 * total if localizer.needs_path else 0))
    if method.trains == "nothing" or localizer.needs_dense_run:
        kept += sum(len(choices) for choices in schedules) * total * size
    check_disk_space(folder, needs, cache=kept, cached=cache.folder)
    cache.spare = sum(needs.values())


def check_disk_space(folder: Path, needs: Mapping[str, int], *, cache: int, cached: Path) -> None:
    """Make sure that a folder's disk has space.

    Args:
        folder: The folder to write to.
        needs: Bytes that must be written, by kind.
        cache: Bytes that the cache may grow by; a warning says if there is too little space.
        cached: The cache's folder.

    Raises:
        CannotWrite: If there is too little space for `needs`.
    """
    total, free = sum(needs.values()), free_bytes(folder)
    if free is not None and total > free:
        parts = ", ".join(f"{kind} {decimal_bytes(size)}" for kind, size in needs.items())
        raise CannotWrite(
            f"{folder} has no room for this run: it needs about {decimal_bytes(total)} ({parts}), "
            f"{decimal_bytes(free)} are free; make room, or choose another output folder"
        )
    left = free_bytes(cached)
    if left is not None and total + cache > left:
        logger.warning(
            "%s may grow by %s, but only %s are free there: outcomes that have no room are "
            "computed and not kept",
            cached,
            decimal_bytes(cache),
            decimal_bytes(left),
        )
