"""Cost of checkpoints: the same dense run and region training, with and without them.

    python benchmarks/performance/checkpoint_cost.py --scale cpu    # MiniLM, two minutes
    python benchmarks/performance/checkpoint_cost.py --scale smoke  # a tiny model: does it run?

A run of MiniLM (or a tiny model) learns a task; both sides stand in one process and alternate, so
that what slows the machine slows both. Beside the ratio of whole runs, which is within the noise,
stands what the checkpoints took by the clock: in % of the run with one every few steps, far more
often than by default, and what that comes to at the default of one a minute.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from time_and_memory import pairs

from cl_graft.lab.experiments.run import run
from cl_graft.settings import config_from, to_nested
from cl_graft.storage.checkpoint_files import FileCheckpoints

RESULTS = Path(__file__).parents[1] / "results"
SCALES: dict[str, dict[str, Any]] = {
    "smoke": {
        "stream.shots": 16,
        "fine_tuning.steps": 12,
        "stream.max_length": 24,
        "grafting.mask_batch": 16,
        "grafting.mask_steps": 4,
    },
    "cpu": {"stream.shots": 256, "fine_tuning.steps": 150},
}
EVERY = {"smoke": 5, "cpu": 50}
"""Steps between checkpoints."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--scale", choices=SCALES, default="cpu")
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--strategies", default="grafting,naive")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = [measure(name, given) for name in given.strategies.split(",")]
    given.results.mkdir(parents=True, exist_ok=True)
    path = given.results / f"checkpoint_cost-{given.scale}.json"
    path.write_text(f"{json.dumps({'scale': given.scale, 'rows': rows}, indent=1)}\n")
    lines = [[*rows[0]], ["---", *["---:"] * (len(rows[0]) - 1)]]
    lines += [[*map(str, row.values())] for row in rows]
    text = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    path.with_suffix(".md").write_text(text)
    sys.stdout.write(text)


def measure(strategy: str, given: argparse.Namespace) -> dict[str, Any]:
    kept: list[tuple[float, int]] = []
    keep = FileCheckpoints.keep

    def timed(self: FileCheckpoints, key: str, state: Any) -> bool:
        started = time.perf_counter()
        written = keep(self, key, state)
        seconds = time.perf_counter() - started
        if self._steps is not None:
            path = self.folder / f"{key.split('-')[0]}.safetensors"
            kept.append((seconds, path.stat().st_size))
        return written

    FileCheckpoints.keep = timed  # type: ignore[method-assign]
    base = {
        "stream.tasks": ["scope"],
        "model.name": given.model,
        "model.device": "cpu",
        **SCALES[given.scale],
    }

    def learn(steps: int | None) -> None:
        upkeep = {"output.checkpoint_seconds": None, "output.checkpoint_steps": steps}
        config = config_from(to_nested({**base, **upkeep}))
        with tempfile.TemporaryDirectory() as out:
            run(config, strategy=strategy, seed=0, out=out)

    try:
        learn(None)
        without, with_them = pairs(
            lambda: learn(None), lambda: learn(EVERY[given.scale]), repeats=given.repeats, warm_up=0
        )
    finally:
        FileCheckpoints.keep = keep  # type: ignore[method-assign]
    ratio = statistics.median(with_them) / statistics.median(without)
    spent, largest = sum(seconds for seconds, _ in kept), max(kept, key=lambda one: one[1])
    return {
        "strategy": strategy,
        "seconds": round(statistics.median(without), 1),
        "with / without": round(ratio, 3),
        "checkpoints a run": round(len(kept) / given.repeats, 1),
        "MB": round(largest[1] / 1e6, 2),
        "seconds each": round(largest[0], 3),
        "% of the run": round(100 * spent / sum(with_them), 2),
        "% at the default": round(100 * largest[0] / max(60.0, 100 * largest[0]), 2),
    }


if __name__ == "__main__":
    main()
