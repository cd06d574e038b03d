"""The whole of a grafting stream against the whole of a naive one: accuracy and wall time.

    python benchmarks/performance/stream_cost.py

QNLI -> AG News -> SST-2 at the scale of ``table4.py --scale cpu``, with the same steps and batches
for both, by turns, seed by seed. Grafting takes the preset ``fast``: a region from a few gradient
batches at the base and no dense run. Seconds are those of whole runs (model, data, training,
evaluation after every task): wall time, and beside it the processor's, which says more of a seed
that shared the machine with other work (``--shared``). Accuracies stand beside those of
independent fine-tuning in ``results/table4-cpu.json``, which has the same scale. Writes
``results/stream_cost.json`` and ``.md``; a seed that is finished is not run again.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch

from cl_graft.lab.experiments.run import run, run_folder
from cl_graft.settings import ExperimentConfig

sys.path.append(str(Path(__file__).parents[1]))
from common import RESULTS, make_config, make_parser
from table4 import SCALES, TASKS

STRATEGIES = ("naive", "grafting")
"""What is timed."""


def main() -> None:
    """Run every seed that is not finished, then write."""
    parser = make_parser(str(__doc__).splitlines()[0], ("cpu", "smoke"), seeds=True)
    parser.set_defaults(seeds="0,1,2", out=Path("runs/stream_cost"))
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--shared", action="store_true", help="other work runs beside these seeds")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    # What is timed is one run each, at the default rates.
    values = {"stream.tasks": TASKS, **SCALES[given.scale], "comparison.tune": False}
    sets = ["preset=fast", "grafting.density=0.003", *given.sets]
    config = make_config(values, given.data, sets)
    seeds = [int(seed) for seed in given.seeds.split(",")]
    about = {"threads": given.threads, "shared": given.shared}
    for seed in seeds:
        finish(config, seed, given.out, about)
    paths = sorted(given.out.glob("seed*.json"))
    cells = {int(path.stem.removeprefix("seed")): json.loads(path.read_text()) for path in paths}
    stored = summary(cells, config, given.scale)
    given.results.mkdir(parents=True, exist_ok=True)
    name = "stream_cost" if given.scale == "cpu" else f"stream_cost-{given.scale}"
    (given.results / f"{name}.json").write_text(json.dumps(stored, indent=1) + "\n")
    (given.results / f"{name}.md").write_text(render(stored))
    sys.stdout.write(render(stored))


def finish(config: ExperimentConfig, seed: int, out: Path, about: dict[str, Any]) -> None:
    """Run a seed that is not on disk yet, every strategy, and write what it took."""
    path = out / f"seed{seed}.json"
    if path.exists():
        return
    cell: dict[str, Any] = dict(about)
    for name in STRATEGIES if seed % 2 == 0 else reversed(STRATEGIES):
        shutil.rmtree(run_folder(out, name, seed), ignore_errors=True)
        # A cache of its own: nothing that is timed may be answered from before.
        shutil.rmtree(out / "cache", ignore_errors=True)
        started, worked = time.perf_counter(), time.process_time()
        result = run(config, strategy=name, seed=seed, out=out)
        cell[name] = {
            "seconds": time.perf_counter() - started,
            "cpu_seconds": time.process_time() - worked,
            "scores": dict(zip(result.tasks, result.R[-1], strict=True)),
            "average_accuracy": result.average_accuracy,
            "backward_transfer": result.backward_transfer,
            "phases": result.seconds,
        }
    path.write_text(json.dumps(cell, indent=1))


def summary(
    cells: dict[int, dict[str, Any]], config: ExperimentConfig, scale: str
) -> dict[str, Any]:
    """Put the seeds together, beside independent fine-tuning at the same scale.

    A seed that shared the machine counts with the processor's seconds, any other with wall time.
    """
    clocks = {s: "cpu_seconds" if cell["shared"] else "seconds" for s, cell in cells.items()}
    ratios = [cells[s]["grafting"][clock] / cells[s]["naive"][clock] for s, clock in clocks.items()]
    stored: dict[str, Any] = {
        "grafting_stream/naive_stream": statistics.median(ratios),
        "grafting_stream/naive_stream/raw": ratios,
    }
    stored["seeds"] = {str(seed): cell for seed, cell in cells.items()}
    stored["machine"] = f"{platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}"
    stored["tasks"] = list(config.stream.tasks)
    if scale == "cpu":
        table4 = json.loads((RESULTS / "table4-cpu.json").read_text())
        independent = table4["strategies"]["independent"]["average_accuracy"]["mean"]
        stored["independent"] = independent
        scores = [cell["grafting"]["average_accuracy"] for cell in cells.values()]
        stored["grafting/independent"] = statistics.mean(scores) / independent
    return stored


def render(stored: dict[str, Any]) -> str:
    """Return the values as Markdown."""
    tasks = stored["tasks"]
    lines = [
        f"| seed | strategy | {' | '.join(tasks)} | average | backward transfer | seconds "
        "| of the processor |",
        f"| ---: | --- | {'---: | ' * len(tasks)}---: | ---: | ---: | ---: |",
    ]
    for seed, cell in stored["seeds"].items():
        for strategy in STRATEGIES:
            row = cell[strategy]
            scores = " | ".join(f"{100 * row['scores'][task]:.1f}" for task in tasks)
            lines.append(
                f"| {seed} | {strategy} | {scores} | {100 * row['average_accuracy']:.1f} "
                f"| {100 * row['backward_transfer']:.1f} "
                f"| {'–' if cell['shared'] else format(row['seconds'], '.0f')} "
                f"| {row['cpu_seconds']:.0f} |"
            )
    threads = ", ".join(str(cell["threads"]) for cell in stored["seeds"].values())
    ratios = ", ".join(f"{ratio:.3f}" for ratio in stored["grafting_stream/naive_stream/raw"])
    lines += [
        "",
        f"Time of a stream of grafting over that of a naive one, by seed: {ratios} (threads: "
        f"{threads}; wall time, the processor's where a seed shared the machine with other work).",
    ]
    if "independent" in stored:
        lines.append(
            f"Its average accuracy: {stored['grafting/independent']:.3f} of independent "
            f"fine-tuning's {100 * stored['independent']:.1f} (table4-cpu)."
        )
    return "\n".join([*lines, "", stored["machine"]]) + "\n"


if __name__ == "__main__":
    main()
