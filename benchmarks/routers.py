"""Without task ids: how far routers and merged encoders fall behind grafting that is told the task.

On a stream of real tasks, for every seed: grafting with the task given (the oracle), grafting whose
router picks the task of each text, and one encoder merged from standalone grafts, its coefficient
chosen on dev rows of the first two tasks. Stated are accuracy with its label space, the share of
texts sent to their own task, passes a text and bytes a task. Results go with command, versions and
machine to ``benchmarks/results/routers-<scale>.json`` and ``.md``. The data is found through the
environment variable CL_GRAFT_DATA or ``--data``.

    python benchmarks/routers.py --scale cpu --workers 2    # MiniLM, 128 shots, 3 seeds
    python benchmarks/routers.py --scale smoke              # 16 shots, 4 steps: does it run?

``--workers N`` computes N runs at once, on Ray (``pip install 'cl-graft[ray]'``).
A finished run (a strategy with a seed) is not computed again, so an interrupted
benchmark goes on where it stopped, and ``--seeds`` can add to it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from common import (
    SHOTS_128,
    SMOKE,
    choose_seeds,
    format_command,
    hide_paths,
    make_config,
    make_parser,
    open_engine,
    parse_options,
    summarize_seeds,
    write_results,
)

from cl_graft.lab.experiments.comparison.compare import compare
from cl_graft.lab.results.run_results import RunResult
from cl_graft.lab.results.strategy_statistics import Spread
from cl_graft.lab.results.tables import spread_text
from cl_graft.strategies.registry import STRATEGIES

TASKS = ["qnli", "ag_news", "sst2_sent", "mrpc"]
SCALES: dict[str, dict[str, Any]] = {
    "smoke": SMOKE,
    "cpu": {**SHOTS_128, "fine_tuning.lr": 0.1},  # the rate that baselines.py chooses
}
MERGED = [name for name, row in STRATEGIES.items() if row.family == "merging"]
COMPARISONS: dict[str, dict[str, Any]] = {
    "routers": {"comparison.strategies": ["grafting", "grafting_by_discriminant"]},
    "merging": {"comparison.strategies": MERGED, "comparison.tune": True},
    "merging and routing": {
        "comparison.strategies": MERGED,
        "comparison.tune": True,
        "comparison.strategy_settings": {name: {"task": "discriminant"} for name in MERGED},
    },
}
"""Their own settings; the folder of each is in OUT."""


def main() -> None:
    """Run the missing runs, and write the summary of all."""
    parser = make_parser("Grafting and merging without task ids.", SCALES, seeds=True, workers=True)
    parser.add_argument("--comparisons", default=",".join(COMPARISONS), help="default: all")
    arguments = parse_options(parser, "routers")
    values = {"stream.tasks": TASKS, **SCALES[arguments.scale]}
    results: dict[str, list[RunResult]] = {}
    summaries: dict[str, Any] = {}
    with open_engine(arguments) as engine:
        for name in arguments.comparisons.split(","):
            config = make_config({**values, **COMPARISONS[name]}, arguments.data, arguments.sets)
            if "mrpc" in config.stream.tasks:  # F1 in its preset, but averages are of one metric
                config = config.with_values(
                    {"stream.task_settings": {"mrpc": {"metric": "accuracy"}}}
                )
            config = config.with_values({"comparison.seeds": choose_seeds(arguments, config)})
            done = compare(config, out=arguments.out / name.replace(" ", "_"), engine=engine)
            results[name] = list(done.runs)
            summaries[name] = json.loads((done.out / "summary.json").read_text())
            for failure in done.failed:
                sys.stdout.write(f"{failure.strategy}, seed {failure.seed}: {failure.error}\n")
    rows = summarize(results)
    stored = {"command": format_command("routers.py"), "rows": rows, "comparisons": summaries}
    table = hide_paths(format_table(rows, summaries), arguments)
    stored = json.loads(hide_paths(json.dumps(stored), arguments))
    write_results("routers", arguments, stored, table)


def summarize(results: Mapping[str, Sequence[RunResult]]) -> list[dict[str, Any]]:
    """Return one row a strategy: what it is told, its scores beside the oracle's, and its costs.

    Shortfalls are those of seeds that the oracle has finished, too.
    """
    runs = [(kind, run) for kind, done in results.items() for run in done]
    oracle = {run.seed: run.average_accuracy for _, run in runs if run.strategy == "grafting"}
    rows: list[dict[str, Any]] = []
    for kind, name in dict.fromkeys((kind, run.strategy) for kind, run in runs):
        own = [run for run in results[kind] if run.strategy == name]
        told = "nothing" if own[0].routed else "the task"
        rows.append(
            {
                "strategy": name,
                "told": "the task, for its head" if kind == "merging" else told,
                "average_accuracy": summarize_seeds(r.average_accuracy for r in own),
                "below_the_oracle": summarize_seeds(
                    oracle[r.seed] - r.average_accuracy
                    for r in own
                    if oracle.get(r.seed) is not None and r.average_accuracy is not None
                ),
                "tasks": {
                    task: summarize_seeds(r.R[-1][j] for r in own)
                    for j, task in enumerate(own[0].tasks)
                },
                "routing_accuracy": summarize_seeds(r.routing_accuracy for r in own),
                "passes_per_row": summarize_seeds(r.passes_per_row for r in own),
                "bytes_per_task": summarize_seeds(mean(r.bytes.values()) for r in own),
            }
        )
    return rows


def format_table(rows: Sequence[Mapping[str, Any]], summaries: Mapping[str, Any]) -> str:
    """Return the rows as a Markdown table, and where they come from."""
    tasks = list(rows[0]["tasks"])
    head = ["strategy", "is told", "average", "below the oracle", *tasks]
    head += ["routing accuracy", "passes a text", "kB a task"]
    lines = [head, ["---", "---", *["---:"] * (len(head) - 2)]]
    lines += [
        [
            row["strategy"],
            row["told"],
            *(
                spread_text(Spread(**row[measure]))
                for measure in ("average_accuracy", "below_the_oracle")
            ),
            *(spread_text(Spread(**row["tasks"][task])) for task in tasks),
            spread_text(Spread(**row["routing_accuracy"])),
            f"{row['passes_per_row']['mean']:.2f}",
            f"{row['bytes_per_task']['mean'] / 1000:.0f}",
        ]
        for row in rows
    ]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    first = next(iter(summaries.values()))
    seeds = ", ".join(str(seed) for seed in first["seeds"])
    return (
        f"{table}\n\nScores in %, mean ± sd over the seeds {seeds}; *below the oracle* in points. "
        "Who is told the task answers among its labels, who is told nothing among the labels of "
        "all tasks, and a text that is sent to another task counts as wrong. "
        f"Model {first['model']['name']}, {first['config']['stream']['shots']} shots, "
        f"{first['config']['fine_tuning']['steps']} steps, "
        f"density {first['config']['grafting']['density']}.\n"
    )


if __name__ == "__main__":
    main()
