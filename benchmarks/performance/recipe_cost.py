"""Cost of learning a task by several recipes: rows, seconds and peak memory.

    python benchmarks/performance/recipe_cost.py                    # MiniLM, topics of requests
    python benchmarks/performance/recipe_cost.py --set model.name=smollm2 --set fine_tuning.steps=50

Naive fine-tuning beside grafting as it is by default (the movement of a short dense run), grafting
as it was (a whole dense run and a learned mask, SGD), and a LoRA with as many passes as the
default. Runs go by turns, each in a process of its own, on the built-in task `topic`. A row that
only goes forward counts a third. Seconds of training are wall time; those of the processor are of
the whole run, which loads and evaluates, too, and say more where other work shares the machine.
Memory is the peak of the process beside its imports. Writes ``results/recipe_cost-MODEL.json`` and
``.md``.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from time_and_memory import peak_memory

from cl_graft.lab.experiments.run import run
from cl_graft.settings import ExperimentConfig

sys.path.append(str(Path(__file__).parents[1]))
from common import STREAM_RECIPE, describe_run, make_config, make_parser

VALUES: dict[str, Any] = {
    "stream.tasks": ["topic"],
    "stream.shots": 128,
    "stream.max_length": 48,
    "stream.max_test": 100,
    "fine_tuning.steps": 150,
    "fine_tuning.evaluations": 0,
}
NAIVE = "naive"


def main() -> None:
    """Run every recipe in turn, as often as asked, then write."""
    parser = make_parser(str(__doc__).splitlines()[0], ("cpu",))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    given.out = Path()
    config = make_config(VALUES, None, given.sets, recipe={})
    found: dict[str, list[dict[str, float]]] = {name: [] for name in make_recipes(config)}
    for place in range(given.rounds):
        for name, (strategy, values) in make_recipes(config).items():
            sys.stderr.write(f"{name}, round {place} …\n")
            changed = config.with_values(values)
            peak = peak_memory(
                prepare, changed, strategy, place, threads=given.threads, allocator="default"
            )
            found[name].append({**peak.result, "MB": peak.memory / 1e6})
    stored = {
        **describe_run("performance/recipe_cost.py", config, given),
        "threads": given.threads,
        "recipes": found,
    }
    given.results.mkdir(parents=True, exist_ok=True)
    stem = given.results / f"recipe_cost-{Path(config.model.name).name}"
    Path(f"{stem}.json").write_text(json.dumps(stored, indent=1) + "\n")
    Path(f"{stem}.md").write_text(render(found))
    sys.stdout.write(render(found))


def make_recipes(config: ExperimentConfig) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return strategy and settings of every recipe."""
    steps = config.fine_tuning.steps
    return {
        NAIVE: ("naive", {}),
        "LoRA, as many passes": ("lora", {"fine_tuning.steps": steps + round(0.2 * steps)}),
        "grafting": ("grafting", {}),
        "grafting, whole dense run and learned mask": ("grafting", STREAM_RECIPE),
    }


def prepare(config: ExperimentConfig, strategy: str, seed: int) -> Callable[[], dict[str, float]]:
    """Return a function that runs a strategy and says what it took."""

    def learn() -> dict[str, float]:
        with tempfile.TemporaryDirectory() as out:
            worked = time.process_time()
            result = run(config, strategy=strategy, seed=seed, out=out)
            passes = result.total_passes
            return {
                "rows": passes.forward_backward + passes.forward / 3,
                "seconds": sum(sum(phases.values()) for phases in result.seconds.values()),
                "cpu_seconds": time.process_time() - worked,
                "score": result.R[-1][0] or 0.0,
            }

    return learn


def render(found: Mapping[str, list[dict[str, float]]]) -> str:
    """Return medians and their ratios to naive fine-tuning, run by run, as Markdown."""
    names = {"rows": "rows", "seconds": "s of training", "cpu_seconds": "s of the processor"}
    head = [cell for name in (*names.values(), "MB") for cell in (name, "/ naive")]
    lines = [f"| | {' | '.join(head)} |", f"| --- |{' ---: |' * len(head)}"]
    for recipe, runs in found.items():
        cells = []
        for key in (*names, "MB"):
            pairs = zip(runs, found[NAIVE], strict=True)
            ratio = statistics.median(own[key] / naive[key] for own, naive in pairs)
            cells += [f"{statistics.median(own[key] for own in runs):,.0f}", f"{ratio:.2f}"]
        lines.append(f"| {recipe} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
