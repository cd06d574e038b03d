"""Long life: memory, open files and step time over a stream of 100 tasks, and over repetitions.

A tiny model learns task after task by grafting, each tested together with all before it. After
every task the process is asked what it holds. Then evaluation, switching and reading the bank are
repeated. What a task must leave (its graft, its rows of R) is bytes; a leak would be seen in the
slope of the lines.

    python tests/stress/torture_long_life.py --scale full
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from tiny_checkpoint import tiny_checkpoint
from torture_report import Row, end_part, options

from cl_graft.banks.open_bank import open_bank
from cl_graft.lab.experiments.run import run, run_folder
from cl_graft.runtime.progress import Step
from cl_graft.settings import config_from, to_nested
from cl_graft.storage import load_bank

_MEMORY_A_TASK = 200_000
"""Bytes by which the process may grow a task: what a task leaves, and the allocator's waste."""

_SLOWER = 1.25
"""How much longer a step may take for the last tasks than for the first."""


@dataclass
class Life:
    """What was seen after every task: bytes in memory, open files, threads, seconds a step."""

    memory: list[int] = field(default_factory=list)
    files: list[int] = field(default_factory=list)
    threads: list[int] = field(default_factory=list)
    steps: list[float] = field(default_factory=list)
    _times: list[float] = field(default_factory=list)

    def look(self, step: Step) -> None:
        """Take a report of a run."""
        now = time.perf_counter()
        if step.phase == "train":
            self._times.append(now)
        elif step.phase == "evaluate" and step.step == step.steps:
            gaps = [b - a for a, b in zip(self._times, self._times[1:], strict=False)]
            self.steps.append(statistics.median(gaps))
            self._times = []
            memory, files, threads = held()
            self.memory.append(memory)
            self.files.append(files)
            self.threads.append(threads)


def held() -> tuple[int, int, int]:
    """Return resident bytes, open files and threads of this process.

    What the allocator holds free is given back first: it is tens of megabytes after a picture was
    drawn, or nothing.
    """
    gc.collect()
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):  # glibc's
        trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    tasks = len(os.listdir("/proc/self/task"))
    # TensorBoard's thread opens its file for every flush: what is held is there at each look.
    files = []
    for _ in range(3):
        files.append(len(os.listdir("/proc/self/fd")))
        time.sleep(0.02)
    return pages * os.sysconf("SC_PAGE_SIZE"), min(files), tasks


def slope(values: Sequence[float]) -> float:
    """Return by how much values grow from one to the next: the median of all pairs' slopes."""
    pairs = [
        (values[j] - values[i]) / (j - i)
        for i in range(len(values))
        for j in range(i + 1, len(values))
    ]
    return statistics.median(pairs)


def stream(folder: Path, *, tasks: int) -> list[str]:
    """Write small tasks of two labels to files, and return their paths."""
    generator = torch.Generator().manual_seed(0)
    words = ["film", "phone", "shop", "team", "book", "river", "price", "rain", "song", "door"]
    paths: list[str] = []
    for number in range(tasks):
        rows = []
        for place in range(60):
            drawn = torch.randint(len(words), (6,), generator=generator).tolist()
            text = " ".join([*(words[i] for i in drawn), ("good", "bad")[place % 2], str(place)])
            rows.append(json.dumps({"text": text, "label": ("yes", "no")[place % 2]}))
        path = folder / f"task{number:03d}.jsonl"
        path.write_text("\n".join(rows) + "\n")
        paths.append(str(path))
    return paths


def live(folder: Path, *, tasks: int) -> Life:
    """Learn a stream, and look after every task."""
    config = config_from(
        to_nested(
            {
                "stream.tasks": stream(folder, tasks=tasks),
                "model.name": str(tiny_checkpoint(folder)),
                "stream.shots": 16,
                "fine_tuning.steps": 12,
                "fine_tuning.batch_size": 8,
                "stream.max_length": 16,
                "stream.max_test": 8,
                "grafting.density": 0.002,
                "grafting.mask_steps": 2,
                "grafting.mask_batch": 16,
                "fine_tuning.evaluations": 1,
                "model.device": "cpu",
            }
        )
    )
    life = Life()
    run(config, strategy="grafting", seed=0, out=folder / "out", progress=life.look)
    return life


def judge(life: Life, *, patience: float = 1.0) -> list[Row]:
    """Say what of a life is flat; `patience` times more may grow where few tasks tell little."""
    most_memory, most_time = _MEMORY_A_TASK * patience, _SLOWER * patience
    tasks = len(life.memory)
    first = tasks // 4  # libraries load and open fonts, caches fill, the allocator grows
    memory = slope(life.memory[first:])
    few = max(3, tasks // 10)
    # The least, as other processes can only lengthen a step.
    early, late = min(life.steps[1 : 1 + few]), min(life.steps[-few:])
    files, threads = life.files[first:], life.threads[first:]
    return [
        _row(
            f"memory over {tasks} tasks",
            memory <= most_memory,
            f"{memory / 1e3:,.0f} kB a task, from {life.memory[first] / 1e6:,.0f} to "
            f"{life.memory[-1] / 1e6:,.0f} MB (at most {most_memory / 1e3:,.0f} kB a task)",
        ),
        _row(
            f"open files and threads over {tasks} tasks",
            max(files) == min(files) and max(threads) == min(threads),
            f"{_span(files)} files, {_span(threads)} threads",
        ),
        _row(
            f"step time over {tasks} tasks",
            late <= most_time * early,
            f"{1e3 * early:.2f} ms for the first {few}, {1e3 * late:.2f} ms for the last {few} "
            f"(at most × {most_time:g})",
        ),
    ]


def _span(counts: Sequence[int]) -> str:
    least, most = min(counts), max(counts)
    return f"always {most}" if least == most else f"{least} to {most}"


def repeated(folder: Path, *, times: int) -> list[Row]:
    """Repeat what a server does all day: answer, switch, read the bank again."""
    bank = run_folder(folder / "out", "grafting", 0) / "bank"
    opened = open_bank(bank)
    rows = len(opened.bank)
    texts = ["The film was good.", "The shop was bad, and the door was too."]
    return [
        _flat("answering", times, lambda n: opened.predict(texts, task=n % rows)),
        _flat("switching", 10 * times, lambda n: opened.switch.to(n % rows)),
        _flat("reading the bank", max(times // 5, 10), lambda _: load_bank(bank)),
        _flat("opening the bank", max(times // 50, 5), lambda _: open_bank(bank)),
    ]


def _flat(what: str, times: int, work: Callable[[int], object]) -> Row:
    """Repeat some work, and compare the second half with the first."""
    for number in range(times // 2 + 1):
        work(number)
    memory, files, _ = held()
    for number in range(times // 2 + 1):
        work(number)
    more, still, _ = held()
    grown = max(0, more - memory)
    flat = grown <= 2**20 and files == still
    return _row(
        f"{what}, {times:,} times", flat, f"{grown / 1e3:,.0f} kB and {still - files} files more"
    )


def _row(what: str, flat: bool, found: str) -> Row:
    return Row(what, 1, int(flat), found, () if flat else (found,))


def main() -> None:
    """Live, repeat, judge."""
    given = options(__doc__ or "").parse_args()
    torch.set_num_threads(1)
    full = given.scale == "full"
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        life = live(folder, tasks=100 if full else 8)
        patience = 1.0 if full else 30.0
        rows = [*judge(life, patience=patience), *repeated(folder, times=1000 if full else 20)]
    end_part(given.out, "long_life", rows, time.monotonic() - started)


if __name__ == "__main__":
    main()
