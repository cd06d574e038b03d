"""Banks of many tasks: seconds to open one, to answer a text, to inspect it and to forget a task.

    python benchmarks/performance/large_bank.py                          # MiniLM, five minutes
    python benchmarks/performance/large_bank.py --tasks 50 --model PATH  # does it run?

One task is learned in a few steps. Its head, metadata and recorded batch are then given to
`--tasks` entries whose regions are drawn at random, with values drawn at random: learning so many
tasks takes days, and files and reads are of the same sizes. Every command is a process of its own,
so its seconds hold the imports and, where it has one, the model. Beside them stand those of the
same command on a bank of one entry, and what the other tasks cost. Seconds are those of the
processor, which other processes change less than those of a clock.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import torch

from cl_graft.banks.open_bank import open_bank
from cl_graft.grafts.bank import GraftBank, Mode
from cl_graft.grafts.graft import Graft
from cl_graft.grafts.region import Region
from cl_graft.lab.experiments.run import run
from cl_graft.settings import config_from, to_nested
from cl_graft.storage import load_bank, save_bank

RESULTS = Path(__file__).parents[1] / "results"
TEXT = "It was a delight."


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--density", type=float, default=0.002)
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        rows = [
            {"mode": mode, **row}
            for mode in get_args(Mode)
            for row in measure(Path(folder) / mode, mode, given)
        ]
    given.results.mkdir(parents=True, exist_ok=True)
    path = given.results / "large_bank.json"
    path.write_text(f"{json.dumps({'tasks': given.tasks, 'rows': rows}, indent=1)}\n")
    lines = [[*rows[0]], ["---", "---", "---:", "---:", "---:"]]
    lines += [[str(value) for value in row.values()] for row in rows]
    text = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    path.with_suffix(".md").write_text(text)
    sys.stdout.write(text)


def measure(folder: Path, mode: Mode, given: argparse.Namespace) -> list[dict[str, Any]]:
    """Time the same things on a bank of many tasks and on one of a single task."""
    settings = {
        "stream.tasks": ["scope"],
        "stream.shots": 8,
        "stream.max_length": 24,
        "stream.max_test": 16,
        "model.name": given.model,
        "fine_tuning.steps": 2,
        "grafting.mode": mode,
        "grafting.mask_steps": 1,
        "grafting.density": given.density,
    }
    run(config_from(to_nested(settings)), strategy="grafting", seed=0, out=folder / "run")
    one = folder / "run" / "grafting" / "seed0" / "bank"
    save_bank(load_bank(one), folder / "one")
    save_bank(many_tasks(load_bank(one), given.tasks, given.density), folder / "many")
    tasks = given.tasks
    last, middle = f"task{tasks - 1}", f"task{tasks // 2}"
    rows = [
        row("open_bank, without the base", lambda place: time_opening(folder / place)),
        row("predict, last task", lambda place: time_predict(folder / place, last)),
        row("predict, middle task", lambda place: time_predict(folder / place, middle)),
        row("inspect", lambda place: time_command("inspect", folder / place)),
    ]
    before = list_times(folder / "many")
    gone = "task0" if mode == "isolated" else last
    rows.append(row(f"forget {gone}", lambda place: time_forget(folder / place, gone)))
    after = list_times(folder / "many")
    rewritten = sum(after[name] != before.get(name) for name in after)
    what = f"files of other tasks that forget {gone} wrote"
    rows.append({"what": what, "one": "0", "many": str(rewritten), "more": ""})
    return rows


def many_tasks(bank: GraftBank, tasks: int, density: float) -> GraftBank:
    """Return a bank of so many entries like the only one of `bank`, with other regions."""
    (like,) = bank.entries
    generator = torch.Generator().manual_seed(0)
    layout, total = bank.layout, bank.layout.total
    owned = torch.zeros(total, dtype=torch.bool)
    entries = []
    for number in range(tasks):
        drawn = torch.randint(total, (max(1, round(density * total)),), generator=generator)
        region = Region.of(layout, drawn)
        taken = owned[region.index] if bank.mode == "prefix" else torch.zeros(len(region)) > 0
        owned[region.index] = True
        mine, before = (Region(layout, region.index[part]) for part in (~taken, taken))
        values = torch.randn(len(mine), generator=generator).to(like.owned.values.dtype)
        graft = Graft(mine, values / 100)
        entries.append(
            replace(like, task=f"task{number}", label=number, owned=graft, owned_before=before)
        )
    return replace(bank, entries=()).extend(entries)


def row(what: str, time_on: Callable[[str], float]) -> dict[str, Any]:
    """Return the seconds of something on the bank of one entry and on that of many."""
    one, many = time_on("one"), time_on("many")
    return {"what": what, "one": f"{one:.2f}", "many": f"{many:.2f}", "more": f"{many - one:.2f}"}


def time_opening(folder: Path) -> float:
    """Return the seconds of `open_bank` less those of the same on a bank without entries."""
    bank = load_bank(folder)
    empty = folder.with_name("empty")
    if not empty.exists():
        save_bank(replace(bank, entries=()), empty)
    seconds = []
    for place in (empty, folder, empty, folder):
        started = time.process_time()
        open_bank(place)
        seconds.append(time.process_time() - started)
    return seconds[3] - seconds[2]


def time_predict(folder: Path, task: str) -> float:
    name = task if len(load_bank(folder)) > 1 else "scope"
    return time_command("predict", folder, TEXT, "--task", name)


def time_forget(folder: Path, task: str) -> float:
    name = task if len(load_bank(folder)) > 1 else "scope"
    return time_command("forget", folder, name)


def time_command(*parts: object) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "cl_graft.cli", *map(str, parts)], capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def list_times(folder: Path) -> dict[str, int]:
    """Return when each file of an entry was written, by name."""
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("entries/*")}


if __name__ == "__main__":
    main()
