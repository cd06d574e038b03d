"""Streams of related tasks: does a graft on the grafts of earlier tasks beat a model of its own?

Sentiment in five kinds of text and inference in three sets, with few and with more rows a class.
Each side's learning rate is chosen alike, among four on dev rows of the first two tasks: the dense
rate by independent fine-tuning, then the region's rate by grafting. Grafting then learns the stream
in two orders, each task on top of all earlier ones, and once with every task on the base alone.
Results go with command, versions and machine to ``benchmarks/results/related_tasks-<scale>.json``
and ``.md``. The data is found through the environment variable CL_GRAFT_DATA or ``--data``.

    python benchmarks/related_tasks.py --workers 2                # MiniLM, 5 seeds
    python benchmarks/related_tasks.py --streams inference --rows 64
    python benchmarks/related_tasks.py --scale smoke              # does it run?

Scores of a seed are averaged over its orders before seeds are: they share rows and base.
``--workers N`` computes N runs at once, on Ray (``pip install 'cl-graft[ray]'``). A finished
run is not computed again, so an interrupted benchmark goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from baselines import shared_rate
from common import (
    choose_seeds,
    describe_run,
    make_config,
    make_parser,
    open_engine,
    parse_options,
    summarize_seeds,
    write_results,
)
from kind_streams import make_runs

from cl_graft.lab.experiments.comparison.compare import Engine
from cl_graft.lab.experiments.comparison.tuning import tune
from cl_graft.lab.results.run_results import RunResult
from cl_graft.metrics.statistics import mean_interval, paired_t_test
from cl_graft.settings import ExperimentConfig
from cl_graft.settings.run_files import CACHE
from cl_graft.storage.cache_folder import DirectoryCache

STREAMS = ("sentiment-domains", "inference")
SIZES: Mapping[int, dict[str, Any]] = {
    64: {"stream.shots": 64, "fine_tuning.steps": 100},
    256: {"stream.shots": 256, "fine_tuning.steps": 200},
}
"""Settings by rows a class."""

SCALES: dict[str, dict[str, Any]] = {
    "smoke": {
        "stream.shots": 8,
        "stream.max_length": 24,
        "stream.max_dev": 8,
        "stream.max_test": 8,
        "fine_tuning.steps": 2,
        "fine_tuning.evaluations": 1,
        "grafting.mask_steps": 2,
        "grafting.mask_batch": 16,
        "comparison.seeds": [0],
    },
    "cpu": {
        "stream.max_length": 64,
        "stream.max_dev": 128,
        "stream.max_test": 1000,
        "fine_tuning.evaluations": 4,
        "grafting.density": 0.003,
        "grafting.mask_steps": 8,
        "grafting.mask_batch": 64,
        "comparison.seeds": [0, 1, 2, 3, 4],
    },
}
PARTS: Mapping[str, dict[str, Any]] = {
    "independent": {"comparison.strategies": ["independent"]},
    "isolated": {"comparison.strategies": ["grafting"], "grafting.mode": "isolated"},
    "on earlier tasks": {"comparison.strategies": ["grafting"], "comparison.orders": 2},
}
"""What is compared: its name in the table, and its settings."""


def main() -> None:
    """Run the missing runs, stream by stream, and store the results after each."""
    parser = make_parser(str(__doc__).splitlines()[0], SCALES, seeds=True, workers=True)
    parser.add_argument("--streams", default=",".join(STREAMS), help="by comma; default: both")
    parser.add_argument("--rows", default=",".join(map(str, SIZES)), help="rows a class, by comma")
    arguments = parse_options(parser, "related_tasks")
    kept = arguments.results / f"related_tasks-{arguments.scale}.json"
    found = json.loads(kept.read_text())["streams"] if kept.is_file() else {}
    with open_engine(arguments) as engine:
        for name in arguments.streams.split(","):
            for rows in map(int, arguments.rows.split(",")):
                config = stream_config(name, rows, arguments)
                out = arguments.out / f"{name}-{rows}"
                found[f"{name}, {rows} rows"] = run_stream(config, out, engine)
                stored = {**describe_run("related_tasks.py", config, arguments), "streams": found}
                del stored["config"]  # each stream has its own
                write_results("related_tasks", arguments, stored, write_table(found))


def stream_config(name: str, rows: int, arguments: argparse.Namespace) -> ExperimentConfig:
    """Return the config of a stream with so many rows a class, without chosen rates."""
    values = {"stream.name": name, **SIZES[rows], **SCALES[arguments.scale]}
    config = make_config(values, arguments.data, arguments.sets)
    return config.with_values({"comparison.seeds": choose_seeds(arguments, config)})


def run_stream(config: ExperimentConfig, out: Path, engine: Engine | None) -> dict[str, Any]:
    """Choose the rates of a stream, run what is left of it, and return what results keep."""
    dense = shared_rate(config, out / "dense")
    config = config.with_values({"fine_tuning.lr": dense["lr"]})
    region = tune(
        config.with_values({"grafting.mode": "isolated", "comparison.tune": True}),
        "grafting",
        out=out,
        cache=DirectoryCache(out / "dense" / CACHE),
    )
    runs: dict[str, list[RunResult]] = {}
    for part, settings in PARTS.items():
        place = out / part.replace(" ", "_")
        runs[part] = make_runs(
            config.with_values({**settings, **region.chosen}), place, engine=engine
        )
    return {
        "tasks": list(config.stream.tasks),
        "shots": config.stream.shots,
        "steps": config.fine_tuning.steps,
        "rates": {
            "fine_tuning.lr": {"chosen": dense["lr"], "tried": dense["scores"]},
            **{
                name: {"chosen": value, "tried": region.scores}
                for name, value in region.chosen.items()
            },
        },
        **describe_runs(runs, config.stream.tasks),
    }


def describe_runs(runs: Mapping[str, Sequence[RunResult]], tasks: Sequence[str]) -> dict[str, Any]:
    """Return scores at the end by part, task and seed, and the differences from independent."""
    scores: dict[str, dict[str, dict[str, float]]] = {}
    for part, own in runs.items():
        for task in tasks:
            by_seed: dict[str, list[float]] = {}
            for one in own:
                score = one.R[-1][list(one.tasks).index(task)]
                if score is not None:
                    by_seed.setdefault(str(one.seed), []).append(score)
            scores.setdefault(part, {})[task] = {seed: fmean(v) for seed, v in by_seed.items()}
    averages = {
        part: {seed: fmean(own[task][seed] for task in tasks) for seed in own[tasks[0]]}
        for part, own in scores.items()
    }
    control = averages["independent"]
    differences: dict[str, Any] = {}
    for part, own in averages.items():
        seeds = [seed for seed in own if seed in control]
        pairs = [own[seed] for seed in seeds], [control[seed] for seed in seeds]
        if part != "independent" and len(seeds) > 1:
            mean, interval = mean_interval([a - b for a, b in zip(*pairs, strict=True)])
            differences[part] = {"mean": mean, "interval": interval, "p": paired_t_test(*pairs)[1]}
    return {
        "scores": scores,
        "averages": averages,
        "above_independent": differences,
        "most_forgetting": {
            part: max(one.forgetting or 0.0 for one in own) for part, own in runs.items()
        },
    }


def write_table(streams: Mapping[str, Any]) -> str:
    """Return the table of all streams as Markdown, scores in %, differences in points."""
    parts = list(PARTS)
    lines = [
        "| stream | "
        + " | ".join(parts)
        + " | above independent: "
        + " | ".join(parts[1:])
        + " | forgetting | seeds |",
        "| --- |" + " ---: |" * (2 * len(parts) + 1),
    ]
    for name, found in streams.items():
        shown = [write_spread(found["averages"][part].values()) for part in parts]
        above = [write_difference(found["above_independent"].get(part)) for part in parts[1:]]
        forgotten = max(found["most_forgetting"].values())
        seeds = len(found["averages"]["independent"])
        lines.append(
            f"| {name} | {' | '.join([*shown, *above])} | {100 * forgotten:.1f} | {seeds} |"
        )
    return "\n".join(lines) + "\n"


def write_spread(values: Any) -> str:
    """Return the mean over seeds in %, with its standard deviation where there are several."""
    spread = summarize_seeds(values)
    return f"{100 * spread['mean']:.1f}" + (
        "" if spread["sd"] is None else f" ± {100 * spread['sd']:.1f}"
    )


def write_difference(found: Mapping[str, Any] | None) -> str:
    """Return a mean difference in points with its 95 % interval and p."""
    if found is None:
        return "–"
    if found["interval"] is None:
        return f"{100 * found['mean']:+.1f}"
    low, high = (100 * end for end in found["interval"])
    return f"{100 * found['mean']:+.1f} ({low:.1f} to {high:.1f}, p {found['p']:.3f})"


if __name__ == "__main__":
    main()
