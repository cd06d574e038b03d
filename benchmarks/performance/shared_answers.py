"""Eight tasks asked of one text against one task, by the layers that entries touch.

    python benchmarks/performance/shared_answers.py

A bank of eight entries of random values on MiniLM (random regions of 0.3 % of the graftable
coordinates in its upper layers, linear heads) answers one text of a few tokens. Timed by turns, in
one process: one task; the eight tasks in one mixed batch, which runs the layers below all entries
once (`cl_graft.models.shared_states`); the same with this switched off; and the eight tasks one
after another, with and without. Medians of ratios to one task. Writes
``results/shared_answers.json`` and ``.md``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from cl_graft import load_model
from cl_graft.grafts.bank import BaseIdentity, Entry, GraftBank
from cl_graft.grafts.blocks import Layers, select_upper
from cl_graft.grafts.graft import Graft
from cl_graft.grafts.region import Layout, Region
from cl_graft.inference.task_switch import Switch
from cl_graft.models import TaskModel, TaskServer, graftable_parameters, make_head, shared_states
from cl_graft.models.shared_states import share_below

RESULTS = Path(__file__).parents[1] / "results"
TASKS = 8
LAYERS: tuple[Layers, ...] = (1, 2, 3, "all")
TOKENS = (16, 48)
WAYS = ("mixed", "mixed, not shared", "one by one", "one by one, not shared")


def main() -> None:
    """Time every way at every depth and length, and write."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    cells = [
        {"layers": layers, "tokens": tokens, **measure(given.model, layers, tokens, given.repeats)}
        for layers in LAYERS
        for tokens in TOKENS
    ]
    stored = {
        "cells": cells,
        "threads": given.threads,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}",
    }
    given.results.mkdir(parents=True, exist_ok=True)
    (given.results / "shared_answers.json").write_text(json.dumps(stored, indent=1) + "\n")
    (given.results / "shared_answers.md").write_text(render(stored))
    sys.stdout.write(render(stored))


def make_server(model: TaskModel, layers: Layers) -> TaskServer:
    """Return a server of entries of random values in the upper layers of a model."""
    parameters = graftable_parameters(model)
    layout, draw = Layout.of(parameters), torch.Generator().manual_seed(0)
    upper = select_upper(model, parameters, layers)
    starts = dict(zip(layout.names, layout.starts, strict=False))
    pool = torch.cat([starts[name] + torch.arange(upper[name].numel()) for name in upper])
    bank = GraftBank(layout, BaseIdentity("0" * 64, "random", "float32"))
    for label in range(TASKS):
        chosen = torch.randint(len(pool), (round(0.003 * layout.total),), generator=draw)
        claimed = Region.of(layout, pool[chosen])
        free = bank.free(claimed)
        values = torch.randn(len(free), generator=draw) * 0.02
        head = make_head(model, classes=2, seed=label)
        model.heads[str(label)] = head.eval()
        entry = Entry(f"task{label}", label, Graft(free, values), claimed - free)
        bank = bank.append(Entry(**{**vars(entry), "head": head.state_dict()}))
    return TaskServer(Switch(model, bank))


def measure(name: str, layers: Layers, tokens: int, repeats: int) -> dict[str, Any]:
    """Return the median ratio of each way to one task, and the milliseconds of one task."""
    model = load_model(name).model.eval()
    server = make_server(model, layers)
    draw = torch.Generator().manual_seed(1)
    numbers = iter(range(10**9))

    def text() -> Tensor:
        """Return a text that was never asked."""
        x = torch.ones(1, 2, tokens, dtype=torch.int64)
        x[0, 0] = torch.randint(1000, 20000, (tokens,), generator=draw)
        x[0, 0, 0] = 1000 + next(numbers) % 20000
        return x

    def ask(x: Tensor, task: int, *, shared: bool) -> None:
        server.switch.to(task)
        with (
            torch.no_grad(),
            share_below(model, server.switch.bank, rows=False) if shared else (nullcontext()),
        ):
            model(x, task)

    def mix(x: Tensor, *, shared: bool) -> None:
        begin = mock.patch.object(shared_states._SharedStates, "begin", return_value=False)
        with nullcontext() if shared else begin:
            server.answer(x.expand(TASKS, -1, -1), list(range(TASKS)))

    def each(x: Tensor, *, shared: bool) -> None:
        for task in range(TASKS):
            ask(x, task, shared=shared)

    ways: dict[str, Callable[[Tensor], None]] = {
        "mixed": lambda x: mix(x, shared=True),
        "mixed, not shared": lambda x: mix(x, shared=False),
        "one by one": lambda x: each(x, shared=True),
        "one by one, not shared": lambda x: each(x, shared=False),
    }
    found: dict[str, list[float]] = {way: [] for way in ways}
    single: list[float] = []
    for repeat in range(repeats + 3):
        alone = seconds(lambda x: ask(x, TASKS - 1, shared=False), text())
        for way, run in ways.items():
            spent = seconds(run, text())
            if repeat >= 3:  # the first ones warm up
                found[way].append(spent / alone)
        if repeat >= 3:
            single.append(1e3 * alone)
    ratios = {way: statistics.median(values) for way, values in found.items()}
    return {"one task, ms": statistics.median(single), "ratios": ratios, "raw": found}


def seconds(run: Callable[[Tensor], None], x: Tensor) -> float:
    """Return the seconds that a call takes."""
    started = time.perf_counter()
    run(x)
    return time.perf_counter() - started


def render(stored: dict[str, Any]) -> str:
    """Return the medians as Markdown."""
    lines = [
        f"| upper layers | tokens | one task, ms | {' | '.join(WAYS)} |",
        f"| --- | ---: | ---: | {'---: | ' * len(WAYS)}".rstrip(),
    ]
    for cell in stored["cells"]:
        ratios = " | ".join(f"{cell['ratios'][way]:.2f}" for way in WAYS)
        lines.append(
            f"| {cell['layers']} | {cell['tokens']} | {cell['one task, ms']:.1f} | {ratios} |"
        )
    lines += ["", f"{stored['machine']}, {stored['threads']} threads. Times of {TASKS} tasks asked"]
    lines[-1] += " of one text over that of one task."
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
