"""The disk space that a run will need, checked before it trains.

There must be space for the bank, the results and the curves, or the run does not start. The cache
may go without: an outcome that would take the others' space is computed and not kept.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from cl_graft.data.encoded_task import EncodedTask
from cl_graft.errors import CannotWrite
from cl_graft.experiments.config import ExperimentConfig
from cl_graft.experiments.schedule import grid_of, schedule_of
from cl_graft.localization import find_localizer
from cl_graft.localization.grafting_settings import GraftingSettings
from cl_graft.models import TaskModel, graftable_parameters
from cl_graft.storage import free_bytes
from cl_graft.storage.cache_folder import DirectoryCache
from cl_graft.storage.elias_fano import packed_size
from cl_graft.strategies.benchmark import TextStream
from cl_graft.strategies.method import Method

__all__ = ["check_disk_space", "reserve_disk_space"]

logger = logging.getLogger(__name__)

_POINT = 200
"""Bytes of a point in a TensorBoard file, and of a number in `results.json`, at most."""

_PICTURE = 100_000
"""Bytes of a picture in a TensorBoard file, about."""

_NAMES = 16_384
"""Bytes of the names, hashes and metadata of an entry, and of the headers of its files, at most."""


def reserve_disk_space(
    config: ExperimentConfig,
    row: Method,
    stream: TextStream,
    model: TaskModel,
    *,
    seed: int,
    folder: Path,
    cache: DirectoryCache,
) -> None:
    """Make sure that there is space for what a run must write, and keep the cache out of it.

    Args:
        config: The run's settings.
        row: Row of its strategy in the registry.
        stream: The tasks.
        model: The model.
        seed: The run's seed.
        folder: Folder of the run.
        cache: Cache of the run, which gets `DirectoryCache.spare`.

    Raises:
        CannotWrite: If there is too little space.
    """
    tensors = graftable_parameters(model).values()
    total = sum(tensor.numel() for tensor in tensors)
    size = max(tensor.element_size() for tensor in tensors)
    needs, kept = {"results and curves": _curves(config, stream)}, 0
    for encoded in stream.tasks:
        schedule = schedule_of(config, encoded.task)
        settings = config.grafting.of_task(schedule, seed=seed)
        runs = len(grid_of(config, encoded.task))
        if row.stored_as == "entry":
            entry = _entry(settings, encoded, model, total=total, size=size)
            needs["bank"] = needs.get("bank", 0) + entry
            kept += _ranking(settings, total=total)
        if row.trains == "nothing" or find_localizer(settings.localizer).needs_dense_run:
            kept += runs * total * size
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
        parts = ", ".join(f"{kind} {_readable(size)}" for kind, size in needs.items())
        raise CannotWrite(
            f"{folder} has no room for this run: it needs about {_readable(total)} ({parts}), "
            f"{_readable(free)} are free; make room, or choose another output folder"
        )
    left = free_bytes(cached)
    if left is not None and total + cache > left:
        logger.warning(
            "%s may grow by %s, but only %s are free there: outcomes that have no room are "
            "computed and not kept",
            cached,
            _readable(cache),
            _readable(left),
        )


def _entry(
    settings: GraftingSettings, encoded: EncodedTask, model: TaskModel, *, total: int, size: int
) -> int:
    """Return what a task's entry takes in a bank, at most."""
    k = min(settings.coordinates(total), total)
    graft = k * size + 2 * packed_size(k, total)
    classes = max(1, encoded.task.num_classes)
    head = 4 * classes * (model.hidden_size + 1)
    recorded_batch = 8 * (5 * encoded.splits["train"][0].shape[-1] + 4 * classes)
    return graft * (2 if settings.keep_standalone else 1) + head + recorded_batch + _NAMES


def _ranking(settings: GraftingSettings, *, total: int) -> int:
    """Return what a task's ranking takes in the cache, about."""
    k = min(settings.coordinates(total), total)
    depth = min(total, max(20 * k, total // 20))
    candidates = settings.candidates(total, k=k)
    path = 4 * total if find_localizer(settings.localizer).needs_path else 0
    return 8 * (depth if candidates is None else min(depth, candidates)) + path


def _curves(config: ExperimentConfig, stream: TextStream) -> int:
    """Return what curves, results and summaries of a run take, about."""
    count = len(stream.tasks)
    steps = sum(schedule_of(config, encoded.task).steps for encoded in stream.tasks)
    return _POINT * (2 * steps + 5 * count * count) + _PICTURE * (count + 3)


def _readable(size: int) -> str:
    return f"{size / 1e6:,.1f} MB" if size >= 1e6 else f"{size / 1e3:,.0f} kB"
