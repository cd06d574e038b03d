"""A sweep on Ray: the same bits as here, however many workers, and whatever is killed on the way.

24 runs (four strategies, six seeds) are run by the engine of one process, by Ray with one and
with two workers, and by a Ray cluster of three nodes on this machine, of which a worker process and
a whole node are killed. Every run of every way must end on the scores and on the hashes of the
test logits that the first way ended on. Wall time is from the first run's start to the summary,
with Ray's own start beside it; all ways compute with one thread a run, each with a cache of its
own.

    python benchmarks/performance/scale_out.py --scale cpu    # MiniLM, 24 runs four times
    python benchmarks/performance/scale_out.py --scale smoke  # 8 runs, a few steps: does it run?
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import ray
import torch
from ray.cluster_utils import Cluster

from cl_graft.lab.experiments.comparison.compare import Engine, compare
from cl_graft.lab.experiments.engines import PoolEngine, ray_pool
from cl_graft.lab.results.comparison import Comparison
from cl_graft.lab.results.run_results import RunResult
from cl_graft.settings import ExperimentConfig, to_dotted
from cl_graft.settings.run_files import versions
from cl_graft.storage import OWNER

sys.path.append(str(Path(__file__).parents[1]))
from common import format_command, hide_paths, make_config, make_parser, parse_options

SHARED = {
    "stream.tasks": ["sst2_sent", "ag_news"],
    "comparison.strategies": ["naive", "lora", "bitfit", "replay"],
    "stream.max_dev": 16,
    "stream.max_test": 100,
    "fine_tuning.evaluations": 1,
    "model.precision": "bf16",
    # A killed run has something to go on with.
    "output.checkpoint_seconds": 2,
}
SCALES: dict[str, dict[str, Any]] = {
    "smoke": {**SHARED, "stream.shots": 16, "fine_tuning.steps": 8, "comparison.seeds": [0, 1]},
    "cpu": {
        **SHARED,
        "stream.shots": 64,
        "fine_tuning.steps": 40,
        "comparison.seeds": [0, 1, 2, 3, 4, 5],
    },
}
SAME = ("R", "ece", "logit_hashes", "bytes", "data_fingerprints")
"""Values of a run that must not depend on the way in which it was run."""


def main() -> None:
    """Run all ways, compare their runs, and store what they took."""
    arguments = parse_options(make_parser(str(__doc__).splitlines()[0], SCALES), "scale_out")
    config = make_config(SCALES[arguments.scale], arguments.data, arguments.sets)
    torch.set_num_threads(1)
    shutil.rmtree(arguments.out, ignore_errors=True)
    out = arguments.out.resolve()
    rows = [time_run("one process", config, out / "here", None)]
    for workers in (1, 2):
        started = time.perf_counter()
        with closing(ray_pool(workers=workers)) as pool:
            start = time.perf_counter() - started
            row = time_run(on_ray(workers), config, out / f"ray{workers}", PoolEngine(pool))
        rows.append({**row, "start": start})
    with cluster() as (address, nodes):
        lost: list[str] = []
        with closing(ray_pool(address=address)) as pool:
            place = out / "killed"
            attack = threading.Thread(target=kill, args=(place, nodes, lost), daemon=True)
            attack.start()
            row = time_run(
                "Ray, 3 nodes, one worker and one node killed", config, place, PoolEngine(pool)
            )
            attack.join(timeout=1)
        rows.append({**row, "lost": lost})
    whole = compare_results(rows) and len(rows[-1]["lost"]) == 2
    stored = {
        "rows": rows,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "versions": {**versions(torch.device("cpu")), "ray": ray.__version__},
        "config": config.values(),
        "command": format_command("performance/scale_out.py"),
    }
    arguments.results.mkdir(parents=True, exist_ok=True)
    stem = arguments.results / f"scale_out-{arguments.scale}"
    text = json.dumps(stored, indent=1) + "\n"
    stem.with_suffix(".json").write_text(hide_paths(text, arguments))
    stem.with_suffix(".md").write_text(render(stored))
    sys.stdout.write(render(stored))
    sys.exit(0 if whole else 1)


def on_ray(workers: int) -> str:
    """Return what a way with so many workers is called."""
    return f"Ray, {workers} worker{'s' * (workers > 1)}"


def compare_results(rows: list[dict[str, Any]]) -> bool:
    """Count for every way the runs that end as the first way's do; tell whether all do."""
    expected = rows[0]["runs"]
    for row in rows:
        runs = row.pop("runs")
        row["of"] = len(expected)
        row["equal"] = sum(runs.get(name) == value for name, value in expected.items())
    return all(row["equal"] == row["of"] for row in rows)


def time_run(
    name: str, config: ExperimentConfig, out: Path, engine: Engine | None
) -> dict[str, Any]:
    """Run the comparison, and return what it took and what its runs ended on."""
    started = time.perf_counter()
    done: Comparison = compare(config, out=out, engine=engine)
    seconds = time.perf_counter() - started
    return {
        "name": name,
        "seconds": seconds,
        "failed": len(done.failed),
        "went_on": sum(run.processes > 1 for run in done.runs),
        "runs": {f"{run.strategy} {run.seed}": ends(run) for run in done.runs},
    }


def ends(run: RunResult) -> dict[str, Any]:
    """Return what a run ended on."""
    return {name: getattr(run, name) for name in SAME}


@contextmanager
def cluster() -> Iterator[tuple[str, list[Callable[[], None]]]]:
    """Start a head that computes nothing and three nodes of a core; yield how to kill each."""
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    try:
        nodes = [made.add_node(num_cpus=1) for _ in range(3)]
        made.wait_for_nodes()

        def make_killer(node: Any) -> Callable[[], None]:
            return lambda: made.remove_node(node, allow_graceful=False)

        yield str(made.address), [make_killer(node) for node in nodes]
    finally:
        made.shutdown()


def kill(out: Path, nodes: list[Callable[[], None]], lost: list[str]) -> None:
    """Kill the process of the first run that has a checkpoint, and then a node under work."""
    first = working_on(out, set())
    os.kill(first["pid"], signal.SIGKILL)
    lost.append(f"worker {first['run']}")
    working_on(out, {first["run"]})
    nodes[0]()
    lost.append("node")


def working_on(out: Path, but: set[str]) -> dict[str, Any]:
    """Wait for a run with a checkpoint, and return its name and its process."""
    while True:
        for folder in out.glob("*/seed*"):
            run = f"{folder.parent.name} {folder.name}"
            try:
                if run not in but and any((folder / "checkpoints").iterdir()):
                    return {"run": run, "pid": json.loads((folder / OWNER).read_text())["pid"]}
            except (OSError, ValueError):
                continue
        time.sleep(0.05)


def render(stored: dict[str, Any]) -> str:
    """Return the table as Markdown."""
    config = to_dotted(stored["config"])
    lines = [
        *table(stored["rows"]),
        "",
        f"{stored['rows'][0]['of']} runs: {', '.join(config['comparison.strategies'])}, seeds "
        f"{', '.join(map(str, config['comparison.seeds']))}; {config['model.name']}, "
        f"{', '.join(config['stream.tasks'])}, {config['stream.shots']} rows a class, "
        f"{config['fine_tuning.steps']} steps; {stored['machine']}, "
        f"Ray {stored['versions']['ray']}.",
    ]
    return "\n".join(lines) + "\n"


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Return the lines of a table of ways."""
    lines = [
        "| way | seconds | of one process | resumed runs | equal to one process |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        start = f" (+ {row['start']:.0f} to start Ray)" if "start" in row else ""
        share = row["seconds"] / rows[0]["seconds"]
        lines.append(
            f"| {row['name']} | {row['seconds']:.0f}{start} | {share:.2f} "
            f"| {row['went_on']} | {row['equal']} of {row['of']} |"
        )
    return lines


if __name__ == "__main__":
    main()
