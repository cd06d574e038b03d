"""Mask learning on candidates: how few coordinates need to be looked at.

For real tasks: how much of the dense learned mask's region is found when only the coordinates that
moved most, a multiple of the region's size, may be chosen, and what the graft and the re-trained
graft of that region score, at equal settings. Results go with command, versions and machine to
``benchmarks/results/candidates-<scale>.json`` and ``.md``. The data is found through the
environment variable CL_GRAFT_DATA or ``--data``.

    python benchmarks/candidates.py --scale cpu      # MiniLM, SST-2 and AG News, on two cores
    python benchmarks/candidates.py --scale smoke    # 16 shots, 4 steps: does it run?

Finished runs are files and are not computed again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from common import SMOKE, describe_run, make_config, make_parser, parse_options, write_results
from localizer_runs import Bench

from cl_graft.settings import ExperimentConfig
from cl_graft.storage.cache_folder import DirectoryCache

TASKS = ["sst2_sent", "ag_news"]
MULTIPLES = (5, 10, 20, 50)
SCALES: dict[str, dict[str, Any]] = {
    "smoke": SMOKE,
    "cpu": {
        "stream.shots": 512,
        "fine_tuning.steps": 300,
        "fine_tuning.evaluations": 2,
        "stream.max_test": 800,
        "grafting.density": 0.001,
    },
}


def main() -> None:
    """Run the missing runs, and write the summary of all."""
    parser = make_parser("Mask learning on candidates.", SCALES)
    parser.add_argument(
        "--multiples",
        default=",".join(map(str, MULTIPLES)),
        help="candidates, in multiples of the region's size",
    )
    arguments = parse_options(parser, "candidates")
    values = {"stream.tasks": TASKS, **SCALES[arguments.scale]}
    config = make_config(values, arguments.data, arguments.sets)
    arguments.out.mkdir(parents=True, exist_ok=True)
    multiples = [int(number) for number in arguments.multiples.split(",")]
    runs = run_all(config, arguments.out, multiples)
    stored = {**describe_run("candidates.py", config, arguments), "cells": runs}
    write_results("candidates", arguments, stored, format_table(runs, config.stream.tasks))


def run_all(config: ExperimentConfig, out: Path, multiples: Sequence[int]) -> list[dict[str, Any]]:
    """Return every run: seed and multiple (None: all coordinates), computed or read."""
    cache = DirectoryCache(out / "cache")
    runs: list[dict[str, Any]] = []
    for seed in config.comparison.seeds:
        bench: Bench | None = None
        for multiple in (None, *multiples):
            file = out / f"{multiple or 'all'}-seed{seed}.json"
            if not file.exists():
                bench = bench or Bench(config, seed, cache)
                started = time.perf_counter()
                found = bench.alone(
                    {"grafting.localizer": "learned_mask", "grafting.mask_candidates": multiple}
                )
                found |= {"multiple": multiple, "seed": seed}
                found["seconds"] = time.perf_counter() - started
                scratch = file.with_suffix(".part")
                scratch.write_text(json.dumps(found, indent=1) + "\n")
                scratch.replace(file)
            runs.append(_with_overlap(json.loads(file.read_text()), runs))
    return [{key: value for key, value in run.items() if key != "regions"} for run in runs]


def format_table(runs: Sequence[Mapping[str, Any]], tasks: Sequence[str]) -> str:
    """Return the table in Markdown: means over seeds."""
    head = ["candidates", "task", "Jaccard with the dense region", "graft", "re-trained graft"]
    lines = [head, ["---", "---", *["---:"] * (len(head) - 2)]]
    for multiple in dict.fromkeys(run["multiple"] for run in runs):
        own = [run for run in runs if run["multiple"] == multiple]
        for task in tasks:
            lines.append(
                [
                    "all" if multiple is None else f"{multiple} × the region",
                    task,
                    f"{mean(run['jaccard'][task] for run in own):.3f}",
                    f"{100 * mean(run['scores']['graft'][task] for run in own):.1f}",
                    f"{100 * mean(run['scores']['retrained'][task] for run in own):.1f}",
                ]
            )
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    seeds = len({run["seed"] for run in runs})
    return f"{text}\n\nAccuracy in %; means over {seeds} seed(s).\n"


def _with_overlap(run: dict[str, Any], before: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Add the Jaccard index with the regions of the same seed's dense run."""
    dense = next((c for c in before if c["seed"] == run["seed"]), run)
    run["jaccard"] = {
        task: _jaccard(found, dense["regions"][task]) for task, found in run["regions"].items()
    }
    return run


def _jaccard(one: Sequence[int], other: Sequence[int]) -> float:
    left, right = set(one), set(other)
    return len(left & right) / len(left | right)


if __name__ == "__main__":
    main()
