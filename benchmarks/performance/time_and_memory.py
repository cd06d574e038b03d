"""Measurement of peak memory in a fresh process, and of times in alternating pairs.

Pairs alternate in one process (`pairs`), or, where what one side allocates would be felt by the
other, in a process each (`pairs_apart`).

Memory is the highest resident set (VmHWM of Linux, which writing 5 to /proc/self/clear_refs sets
back) while a callable runs, less the resident set right before, after everything was set up. In the
process that is measured glibc's malloc has one arena and gives every block above 64 KiB pages of
its own, which go back when the block is freed: so the peak is that of living tensors, and not of
how a heap happened to be cut up before. `allocator="default"` leaves malloc alone.

With a GPU in use, the highest number of bytes in its tensors is measured beside.
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

import torch

_EXACT = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "65536"}
_CLEAR = Path("/proc/self/clear_refs")
_STATUS = Path("/proc/self/status")


@dataclass(frozen=True)
class Peak:
    """Peak memory of a callable, in bytes."""

    memory: int
    device: int | None
    baseline: int
    result: Any


def peak_memory(
    prepare: Callable[..., Callable[[], Any]],
    *args: Any,
    threads: int = 1,
    allocator: Literal["exact", "default"] = "exact",
) -> Peak:
    """Measure what a callable needs, in a process of its own."""
    spawn = multiprocessing.get_context("spawn")
    with (
        _environment(_threads(threads) | (_EXACT if allocator == "exact" else {})),
        ProcessPoolExecutor(max_workers=1, mp_context=spawn) as pool,
    ):
        return pool.submit(_measure, prepare, args, threads).result()


def pairs(
    a: Callable[[], object], b: Callable[[], object], *, repeats: int = 7, warm_up: int = 1
) -> tuple[list[float], list[float]]:
    """Time two callables in alternating pairs (a b, b a, a b, …): what slows a machine for a while
    then slows both.
    """
    seconds: tuple[list[float], list[float]] = ([], [])
    for pair in range(warm_up + repeats):
        for place in (0, 1) if pair % 2 == 0 else (1, 0):
            _synchronize()
            started = time.perf_counter()
            (a, b)[place]()
            _synchronize()
            if pair >= warm_up:
                seconds[place].append(time.perf_counter() - started)
    return seconds


def pairs_apart(
    a: Callable[[], Callable[[], object]],
    b: Callable[[], Callable[[], object]],
    *,
    threads: int = 1,
    repeats: int = 7,
    warm_up: int = 4,
) -> tuple[list[float], list[float]]:
    """Time two callables in alternating pairs, each in a process of its own.

    Each finds its memory as its own last run left it. In one process a full step's gradients, once
    freed, go back to the system, and the step that follows pays for pages that it would have kept.
    """
    spawn = multiprocessing.get_context("spawn")
    ends: list[Connection] = []
    processes = []
    with _environment(_threads(threads)):
        for prepare in (a, b):
            end, other = spawn.Pipe()
            ends.append(end)
            processes.append(spawn.Process(target=_when_told, args=(other, prepare, threads)))
            processes[-1].start()
            other.close()

    def tell(end: Connection) -> None:
        try:
            end.send(True)
            end.recv()
        except (EOFError, ConnectionError):
            raise RuntimeError("a timed process ended; see above") from None

    first, second = ends
    try:
        return pairs(lambda: tell(first), lambda: tell(second), repeats=repeats, warm_up=warm_up)
    finally:
        for end, process in zip(ends, processes, strict=True):
            end.close()
            process.join()


def _when_told(end: Connection, prepare: Callable[[], Callable[[], object]], threads: int) -> None:
    """Run what `prepare` returns whenever the other end says so, until that is closed."""
    torch.set_num_threads(threads)
    run = prepare()
    with suppress(EOFError):
        while end.recv():
            run()
            _synchronize()
            end.send(True)


def _measure(
    prepare: Callable[..., Callable[[], Any]], args: tuple[Any, ...], threads: int
) -> Peak:
    torch.set_num_threads(threads)
    run = prepare(*args)
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    gpu = torch.cuda.is_initialized()
    held = 0
    if gpu:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
    _CLEAR.write_text("5")
    baseline = _resident("VmRSS")
    result = run()
    _synchronize()
    memory = max(0, _resident("VmHWM") - baseline)
    device = torch.cuda.max_memory_allocated() - held if gpu else None
    return Peak(memory, device, baseline, result)


def _resident(key: str) -> int:
    """Return a number of /proc/self/status in bytes."""
    lines = (line.split(":") for line in _STATUS.read_text().splitlines())
    return next(int(value.split()[0]) * 1024 for name, value in lines if name == key)


def _synchronize() -> None:
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def _threads(count: int) -> dict[str, str]:
    return {"OMP_NUM_THREADS": str(count), "MKL_NUM_THREADS": str(count)}


@contextmanager
def _environment(settings: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for a `with` block: a process started in it inherits them."""
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
