"""Long life: what a process holds, and how long a step takes, over a stream of many tasks.

A tiny model learns task after task by grafting, each tested together with all before it. What a
task must leave (its graft, its rows of R) is bytes; a leak shows in the slope. ``TASKS=100`` in the
environment makes the life longer.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import statistics
import sys
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from tiny_checkpoint import tiny_checkpoint

from cl_graft.banks.open_bank import open_bank
from cl_graft.lab.experiments.folders import run_folder
from cl_graft.lab.experiments.run import run
from cl_graft.runtime.progress import Step
from cl_graft.settings import config_from, to_nested
from cl_graft.storage import load_bank

TASKS = int(os.environ.get("TASKS", "30"))
MEMORY_A_TASK = 200_000
"""Bytes by which the process may grow a task: what a task leaves, and the allocator's waste."""
SLOWER = 1.25
"""How much longer a step may take for the last tasks than for the first."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="looks into Linux's /proc"),
]


def held() -> tuple[int, int, int]:
    """Resident bytes, open files and threads of this process, after what is free is given back."""
    gc.collect()
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):  # glibc's
        trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    files = []
    for _ in range(3):  # TensorBoard's thread opens its file for every flush
        files.append(len(os.listdir("/proc/self/fd")))
        time.sleep(0.02)
    threads = len(os.listdir("/proc/self/task"))
    return pages * os.sysconf("SC_PAGE_SIZE"), min(files), threads


def slope(values: Sequence[float]) -> float:
    """By how much values grow from one to the next: the median of all pairs' slopes."""
    return statistics.median(
        (values[j] - values[i]) / (j - i)
        for i in range(len(values))
        for j in range(i + 1, len(values))
    )


def write_tasks(folder: Path) -> list[str]:
    """Write small tasks of two labels to files, and return their paths."""
    generator = torch.Generator().manual_seed(0)
    words = ["film", "phone", "shop", "team", "book", "river", "price", "rain", "song", "door"]
    paths: list[str] = []
    for number in range(TASKS):
        rows = []
        for place in range(60):
            drawn = torch.randint(len(words), (6,), generator=generator).tolist()
            text = " ".join([*(words[i] for i in drawn), ("good", "bad")[place % 2], str(place)])
            rows.append(json.dumps({"text": text, "label": ("yes", "no")[place % 2]}))
        path = folder / f"task{number:03d}.jsonl"
        path.write_text("\n".join(rows) + "\n")
        paths.append(str(path))
    return paths


def test_a_long_stream_leaks_neither_memory_nor_files_and_steps_stay_as_fast(tmp_path):
    config = config_from(
        to_nested(
            {
                "stream.tasks": write_tasks(tmp_path),
                "model.name": str(tiny_checkpoint(tmp_path)),
                "stream.shots": 16,
                "stream.max_length": 16,
                "fine_tuning.steps": 12,
                "fine_tuning.evaluations": 1,
                "grafting.mask_steps": 2,
                "grafting.mask_batch": 16,
            }
        )
    )
    seen: list[tuple[int, int, int]] = []
    steps: list[float] = []
    times: list[float] = []

    def look(step: Step) -> None:
        if step.phase == "train":
            times.append(time.process_time())
        elif step.phase == "evaluate" and step.step == step.steps:
            gaps = [b - a for a, b in pairwise(times)]
            steps.append(statistics.median(gaps))
            times.clear()
            seen.append(held())

    result = run(config, strategy="grafting", seed=0, out=tmp_path / "out", progress=look)
    assert result.forgetting == 0.0
    late = seen[len(seen) // 3 :]
    memory, files, threads = zip(*late, strict=True)
    assert slope(memory) < MEMORY_A_TASK
    assert max(files) - files[0] <= 2
    assert threads[-1] <= threads[0]
    third = len(steps) // 3
    assert statistics.median(steps[-third:]) < SLOWER * statistics.median(steps[:third])

    # What reads and moves the bank again and again holds no more for it.
    folder = run_folder(tmp_path / "out", "grafting", 0)
    opened = open_bank(folder)
    before: list[int] = []
    for _ in range(10):
        load_bank(folder / "bank")
        for position in range(TASKS):
            opened.carry(position)
        before.append(held()[0])
    assert slope(before[3:]) < MEMORY_A_TASK
