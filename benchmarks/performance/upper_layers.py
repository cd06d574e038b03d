"""A training step in the upper layers, its lower states computed or stored, against a full one.

    python benchmarks/performance/upper_layers.py --threads 1

Steps of MiniLM, forward, backward and optimiser, on batches of random tokens, rows of 32 to 66, so
49 on average: naive fine-tuning of all layers and of the upper ones, and training of a random
region of 0.3 % of the graftable coordinates of the same layers. Below the upper layers nothing is
trained: their states are computed in every step, as in a task's first epoch, or stored, as in all
others. A round runs every variant once over all batches, one after another. Times are CPU seconds
of the process, and ratios those of one round; stated are medians over rounds. Writes
``results/upper_layers.json`` and ``.md``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cl_graft import load_model
from cl_graft.grafts.blocks import Layers, select_upper
from cl_graft.grafts.region import Layout, Region
from cl_graft.models import TaskModel, graftable_parameters, make_head
from cl_graft.models.lower_states import freeze_below
from cl_graft.runtime.native_libraries import keep_freed_memory
from cl_graft.training.region_parameters import RegionParameters

RESULTS = Path(__file__).parents[1] / "results"
DENSITY = 0.003
BATCHES, ROWS, TOKENS = 16, 8, (32, 66)
STORED = 1 << 30
"""Bytes of memory for stored states; what all batches need is far less."""

Batch = tuple[Tensor, Tensor]
Round = Callable[[], None]


def main() -> None:
    """Time every variant in every round, and write."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--layers", default="3,2", help="numbers of upper layers, by comma")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    keep_freed_memory()  # as the command line does
    layers = [int(number) for number in given.layers.split(",")]
    seconds = time_rounds(make_variants(given.model, layers), given.rounds)
    whole = seconds["naive, all layers"]
    ratios = {
        name: statistics.median(own / base for own, base in zip(spent, whole, strict=True))
        for name, spent in seconds.items()
    }
    stored = {
        "ratios": ratios,
        "seconds": seconds,
        "threads": given.threads,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}",
    }
    given.results.mkdir(parents=True, exist_ok=True)
    (given.results / "upper_layers.json").write_text(json.dumps(stored, indent=1) + "\n")
    (given.results / "upper_layers.md").write_text(render(stored, layers))
    sys.stdout.write(render(stored, layers))


def make_variants(name: str, layers: Sequence[int]) -> dict[str, Round]:
    """Return every variant's round, each on a model of its own."""
    found = {
        "naive, all layers": make_round(load(name), train_all, "all"),
        "region, all layers": make_round(load(name), train_region, "all"),
    }
    for number in layers:
        for what, train in (("naive", train_all), ("region", train_region)):
            for memory, states in ((None, "computed"), (STORED, "stored")):
                step = make_round(load(name), train, number, memory=memory)
                found[f"{what}, upper {number}, {states}"] = step
    return found


def load(name: str) -> TaskModel:
    """Return the model with a head for one task, without dropout."""
    model = load_model(name).model.eval()
    model.heads["0"] = make_head(model, classes=2, seed=0)
    return model


def draw_batches() -> list[Batch]:
    """Draw tokens and mask, shape (rows, 2, tokens of the longest), and classes (rows,)."""
    draw = torch.Generator().manual_seed(0)
    batches: list[Batch] = []
    for _ in range(BATCHES):
        lengths = torch.randint(TOKENS[0], TOKENS[1] + 1, (ROWS,), generator=draw)
        mask = (torch.arange(int(lengths.max())) < lengths[:, None]).long()
        ids = torch.randint(10, 190, mask.shape, generator=draw) * mask
        batches.append((torch.stack([ids, mask], dim=1), torch.arange(ROWS) % 2))
    return batches


def train_all(model: TaskModel, parameters: Mapping[str, nn.Parameter]) -> tuple[Any, Round]:
    """Train every one of these parameters, by SGD; return what is trained, and what ends a step."""
    for parameter in parameters.values():
        parameter.requires_grad_()
    return list(parameters.values()), lambda: None


def train_region(model: TaskModel, parameters: Mapping[str, nn.Parameter]) -> tuple[Any, Round]:
    """Train a random region of these parameters alone."""
    layout, draw = Layout.of(parameters), torch.Generator().manual_seed(1)
    size = round(DENSITY * layout.total)
    region = Region.of(layout, torch.randperm(layout.total, generator=draw)[:size])
    live = RegionParameters(model, region)
    return [live.vector], live.write_


def make_round(
    model: TaskModel, train: Callable[..., Any], layers: Layers, *, memory: int | None = None
) -> Round:
    """Return the function that makes a step on every batch."""
    model.requires_grad_(False)
    graftable = graftable_parameters(model)
    trained, finish = train(model, select_upper(model, graftable, layers))
    head = list(model.heads["0"].requires_grad_().parameters())
    optimizer = torch.optim.SGD([*trained, *head], lr=1e-4)
    batches = draw_batches()

    def run() -> None:
        with freeze_below(model, layers, memory=memory):
            for x, classes in batches:
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x, 0), classes).backward()
                optimizer.step()
                finish()

    return run


def time_rounds(variants: Mapping[str, Round], rounds: int) -> dict[str, list[float]]:
    """Return the CPU seconds of every variant in every round, after one that does not count."""
    spent: dict[str, list[float]] = {name: [] for name in variants}
    for number in range(rounds + 1):
        for name, run in variants.items():
            started = time.process_time()
            run()
            if number:
                spent[name].append(time.process_time() - started)
    return spent


def render(stored: Mapping[str, Any], layers: Sequence[int]) -> str:
    """Return the ratios as Markdown."""

    def show(name: str) -> str:
        return f"{stored['ratios'][name]:.2f}" if name in stored["ratios"] else ""

    lines = ["| what trains | states computed | stored |", "| --- | ---: | ---: |"]
    for what in ("naive", "region"):
        lines.append(f"| {what}, all layers | {show(f'{what}, all layers')} | |")
        for number in layers:
            name = f"{what}, upper {number}"
            both = [show(f"{name}, {states}") for states in ("computed", "stored")]
            lines.append(f"| {name} | {' | '.join(both)} |")
    lines += ["", f"{stored['machine']}, {stored['threads']} threads. CPU seconds of a step over"]
    lines[-1] += " those of naive fine-tuning of all layers."
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
