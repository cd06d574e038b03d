"""Mask learning on candidates: how few coordinates need to be looked at.

For real tasks: how much of the dense learned mask's region is found when only the coordinates that
moved most, a multiple of the region's size, may be chosen, and what the graft and the re-trained
graft of that region score, at equal settings. Results go with command, versions and machine to
``benchmarks/results/candidates-<scale>.json`` and ``.md``. The data is found through the
environment variable CL_GRAFT_DATA or ``--data``.

    python benchmarks/candidates.py --scale cpu      # MiniLM, SST-2 and AG News, on two cores
    python benchmarks/candidates.py --scale smoke    # 16 shots, 4 steps: does it run?

Finished cells are files and are not computed again.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from localizer_cells import Bench

from cl_graft.experiments.cache import DirectoryCache
from cl_graft.experiments.config import ExperimentConfig, load_config
from cl_graft.experiments.results import machine, versions

RESULTS = Path(__file__).parent / "results"
TASKS = ["sst2_sent", "ag_news"]
MULTIPLES = (5, 10, 20, 50)
SCALES: dict[str, dict[str, Any]] = {
    "smoke": {
        "shots": 16,
        "steps": 4,
        "evaluations": 1,
        "max_dev": 16,
        "max_test": 32,
        "mask_steps": 2,
        "mask_batch": 32,
        "seeds": [0],
    },
    "cpu": {"shots": 512, "steps": 300, "evaluations": 2, "max_test": 800, "density": 0.001},
}


def main() -> None:
    """Run the missing cells, and write the summary of all."""
    parser = argparse.ArgumentParser(description="Mask learning on candidates.")
    parser.add_argument("--scale", choices=SCALES, default="cpu")
    parser.add_argument("--data", type=Path, default=os.environ.get("CL_GRAFT_DATA"))
    parser.add_argument("--out", type=Path, help="where cells go; default runs/candidates-<scale>")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the summary goes")
    parser.add_argument(
        "--multiples",
        default=",".join(map(str, MULTIPLES)),
        help="candidates, in multiples of the region's size",
    )
    parser.add_argument("--set", dest="sets", action="append", default=[], metavar="NAME=VALUE")
    arguments = parser.parse_args()
    if arguments.data is None:
        parser.error("no data: set CL_GRAFT_DATA or give --data")
    values = {"tasks": TASKS, "data": str(arguments.data), **SCALES[arguments.scale]}
    config = load_config(
        None, [*(f"{k}={json.dumps(v)}" for k, v in values.items()), *arguments.sets]
    )
    out = arguments.out or Path("runs") / f"candidates-{arguments.scale}"
    out.mkdir(parents=True, exist_ok=True)
    cells = run_cells(config, out, [int(number) for number in arguments.multiples.split(",")])
    command = shlex.join(["python", "benchmarks/candidates.py", *sys.argv[1:]])
    for path, name in {str(arguments.data): "$CL_GRAFT_DATA", str(out): "OUT"}.items():
        command = command.replace(path, name)
    stored = {
        "command": command,
        "config": {**config.model_dump(mode="json"), "data": "$CL_GRAFT_DATA"},
        "machine": machine(torch.device("cpu")),
        "versions": versions(torch.device("cpu")),
        "cells": cells,
    }
    arguments.results.mkdir(parents=True, exist_ok=True)
    stem = arguments.results / f"candidates-{arguments.scale}"
    stem.with_suffix(".json").write_text(json.dumps(stored, indent=1) + "\n")
    table = table_of(cells, config.tasks)
    stem.with_suffix(".md").write_text(table)
    sys.stdout.write(table)


def run_cells(
    config: ExperimentConfig, out: Path, multiples: Sequence[int]
) -> list[dict[str, Any]]:
    """Return every cell: seed and multiple (None: all coordinates), computed or read."""
    cache = DirectoryCache(out / "cache")
    cells: list[dict[str, Any]] = []
    for seed in config.seeds:
        bench: Bench | None = None
        for multiple in (None, *multiples):
            file = out / f"{multiple or 'all'}-seed{seed}.json"
            if not file.exists():
                bench = bench or Bench(config, seed, cache)
                started = time.perf_counter()
                found = bench.alone({"localizer": "learned_mask", "mask_candidates": multiple})
                found |= {"multiple": multiple, "seed": seed}
                found["seconds"] = time.perf_counter() - started
                scratch = file.with_suffix(".part")
                scratch.write_text(json.dumps(found, indent=1) + "\n")
                scratch.replace(file)
            cells.append(_with_overlap(json.loads(file.read_text()), cells))
    return [{key: value for key, value in cell.items() if key != "regions"} for cell in cells]


def table_of(cells: Sequence[Mapping[str, Any]], tasks: Sequence[str]) -> str:
    """Return the table in Markdown: means over seeds."""
    head = ["candidates", "task", "Jaccard with the dense region", "graft", "re-trained graft"]
    lines = [head, ["---", "---", *["---:"] * (len(head) - 2)]]
    for multiple in dict.fromkeys(cell["multiple"] for cell in cells):
        own = [cell for cell in cells if cell["multiple"] == multiple]
        for task in tasks:
            lines.append(
                [
                    "all" if multiple is None else f"{multiple} × the region",
                    task,
                    f"{mean(cell['jaccard'][task] for cell in own):.3f}",
                    f"{100 * mean(cell['scores']['graft'][task] for cell in own):.1f}",
                    f"{100 * mean(cell['scores']['retrained'][task] for cell in own):.1f}",
                ]
            )
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    seeds = len({cell["seed"] for cell in cells})
    return f"{text}\n\nAccuracy in %; means over {seeds} seed(s).\n"


def _with_overlap(cell: dict[str, Any], before: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Add the Jaccard index with the regions of the same seed's dense cell."""
    dense = next((c for c in before if c["seed"] == cell["seed"]), cell)
    cell["jaccard"] = {
        task: _jaccard(found, dense["regions"][task]) for task, found in cell["regions"].items()
    }
    return cell


def _jaccard(one: Sequence[int], other: Sequence[int]) -> float:
    left, right = set(one), set(other)
    return len(left & right) / len(left | right)


if __name__ == "__main__":
    main()
