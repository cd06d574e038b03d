"""The frontier of localizers: what a region is worth against what it costs to find and train.

On a stream of real tasks, for each localizer and seed: the accuracy of the graft (tuned values on
the region), of the re-trained graft (the region trained alone on the base) and of continual
grafting, against the passes that they need, in multiples of the dense run's. A pass is a row that
goes forward and backward; a row that only goes forward counts a third. Results go with command,
versions and machine to ``benchmarks/results/frontier-<scale>.json``, ``.md`` and ``.png``. The data
is found through the environment variable CL_GRAFT_DATA or ``--data``.

    python benchmarks/frontier.py --scale cpu        # MiniLM, 4 tasks, 3 seeds, on two cores
    python benchmarks/frontier.py --scale smoke      # 16 shots, 4 steps: does it run?

A finished run (a localizer with a seed) is a file and is not computed again, so an interrupted
benchmark goes on where it stopped; several processes may share OUT if each has its own ``--seeds``.
The summary is made of all runs that are finished.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from common import (
    SMOKE,
    choose_seeds,
    describe_run,
    make_config,
    make_parser,
    parse_options,
    write_results,
)
from localizer_runs import Bench
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from cl_graft.lab.results.strategy_statistics import Spread
from cl_graft.lab.results.tables import spread_text
from cl_graft.settings import ExperimentConfig
from cl_graft.storage.cache_folder import DirectoryCache
from cl_graft.training.learnable_task import Passes

TASKS = ["sst2_sent", "ag_news", "qnli", "mnli"]
SCALES: dict[str, dict[str, Any]] = {
    "smoke": SMOKE,
    "cpu": {
        "stream.shots": 384,
        "fine_tuning.steps": 160,
        "fine_tuning.evaluations": 2,
        "grafting.dropout": False,
        "model.precision": "bf16",
        "stream.max_dev": 96,
        "stream.max_test": 400,
        "grafting.mask_steps": 8,
        "grafting.mask_batch": 32,
        "grafting.density": 0.002,
        "comparison.seeds": [0, 1, 2],
    },
}
# The first one's dense run also gathers the path; the others are answered by its cache.
VARIANTS: dict[str, dict[str, Any]] = {
    "path_integral": {},
    "movement": {},
    "learned_mask": {"grafting.localizer": "learned_mask", "grafting.mask_candidates": None},
    "learned_mask, 20x": {"grafting.localizer": "learned_mask", "grafting.mask_candidates": 20},
    "base_gradient": {},
    "base_gradient, lr 0.3": {"grafting.localizer": "base_gradient", "grafting.lr": 0.3},
    "fisher": {},
    "random": {},
}
MEASURES = {"graft": "graft", "retrained": "re-trained graft", "continual": "continual grafting"}


def main() -> None:
    """Run the missing runs, and write the summary of all."""
    parser = make_parser("Accuracy against passes, by localizer.", SCALES, seeds=True)
    parser.add_argument("--localizers", help="the variants to run; default: all")
    arguments = parse_options(parser, "frontier")
    values = {"stream.tasks": TASKS, **SCALES[arguments.scale]}
    config = make_config(values, arguments.data, arguments.sets)
    names = _choose_variants(arguments.localizers, parser)
    run_all(config, choose_seeds(arguments, config), names, arguments.out)
    write_summary(config, arguments)


def run_all(
    config: ExperimentConfig, seeds: Sequence[int], names: Sequence[str], out: Path
) -> None:
    """Compute every run that has no file yet."""
    cache = DirectoryCache(out / "cache")
    for seed in seeds:
        bench: Bench | None = None
        for name in ("dense", *names):
            file = out / f"{name.replace(', ', '-').replace(' ', '-')}-seed{seed}.json"
            if file.exists():
                continue
            bench = bench or Bench(config, seed, cache)
            started = time.perf_counter()
            found = bench.dense() if name == "dense" else bench.run(VARIANTS[name] | _own(name))
            found |= {"variant": name, "seed": seed, "seconds": time.perf_counter() - started}
            scratch = file.with_suffix(".part")
            scratch.write_text(json.dumps(found, indent=1) + "\n")
            scratch.replace(file)
            sys.stdout.write(f"{file.stem}: {found['seconds']:.0f} s\n")
            sys.stdout.flush()


def write_summary(config: ExperimentConfig, arguments: argparse.Namespace) -> None:
    """Write JSON, table and picture of all finished runs."""
    runs = [json.loads(path.read_text()) for path in sorted(arguments.out.glob("*-seed*.json"))]
    rows = summarize(runs)
    stored = {**describe_run("frontier.py", config, arguments), "rows": rows, "cells": runs}
    stem = write_results("frontier", arguments, stored, format_table(rows))
    draw_figure(rows).savefig(f"{stem}.png", dpi=150)


def summarize(runs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one row a variant: mean and spread over seeds, passes in multiples of the dense run's.

    Seeds without a dense run, and variants without a seed, are left out.
    """
    dense = {run["seed"]: run for run in runs if run["variant"] == "dense"}
    rows: list[dict[str, Any]] = []
    for name in ("dense", *VARIANTS):
        own = [c for c in runs if c["variant"] == name and c["seed"] in dense]
        if not own:
            continue
        costs = [_costs(run, dense[run["seed"]]) for run in own]
        row: dict[str, Any] = {"variant": name, "seeds": sorted(run["seed"] for run in own)}
        row["passes"] = {key: mean(cost[key] for cost in costs) for key in costs[0]}
        row["scores"] = {
            measure: _spread([mean(run["scores"][measure].values()) for run in own])
            for measure in own[0]["scores"]
        }
        row["by_task"] = {
            measure: {
                task: _spread([run["scores"][measure][task] for run in own])
                for task in own[0]["scores"][measure]
            }
            for measure in own[0]["scores"]
        }
        rows.append(row)
    return rows


def format_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the table in Markdown."""
    head = ["localizer", "to find the region", "graft", "re-trained graft", "continual grafting"]
    head += ["all passes"]
    lines = [head, ["---", *["---:"] * (len(head) - 1)]]
    for row in rows:
        passes, scores = row["passes"], row["scores"]
        if row["variant"] == "dense":
            text = spread_text(Spread(**scores["dense"], interval=None, n=0))
            lines.append(["dense run alone", "1.00", text, "–", "–", "1.00"])
            continue
        lines.append(
            [
                f"`{row['variant']}`",
                f"{passes['find']:.2f}",
                *(
                    spread_text(Spread(**scores[measure], interval=None, n=0))
                    for measure in MEASURES
                ),
                f"{passes['continual']:.2f}",
            ]
        )
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    seeds = max((len(row["seeds"]) for row in rows), default=0)
    return (
        f"{text}\n\nAverage accuracy over the tasks in %, mean ± sd over {seeds} seeds; passes in "
        "multiples of the dense run's. A graft without a dense run of its own borrows tuned values "
        "from one, which only its graft column has to pay.\n"
    )


def draw_figure(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw accuracy against passes, one panel a measure."""
    figure = Figure(figsize=(13, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    colours = ["#000000", "#E69F00", "#56B4E9", "#009E73", "#CC79A7", "#0072B2", "#D55E00"]
    panels = figure.subplots(1, 3, sharey=True)
    for panel, (measure, title) in zip(panels, MEASURES.items(), strict=True):
        for place, row in enumerate(rows):
            plain = row["variant"] == "dense"
            stated = row["scores"]["dense" if plain else measure]
            panel.errorbar(
                row["passes"]["dense" if plain else measure],
                100 * stated["mean"],
                yerr=100 * (stated["sd"] or 0.0),
                fmt="*" if plain else "osD^v"[place % 5],
                color=colours[place % len(colours)],
                capsize=2,
                label="dense run alone" if plain else row["variant"],
            )
        panel.set_title(title)
        panel.set_xlabel("passes, in multiples of the dense run's")
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("average accuracy (%)")
    panels[-1].legend(fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def _costs(run: Mapping[str, Any], dense: Mapping[str, Any]) -> dict[str, float]:
    """Return what each measure costs, in multiples of the dense run's passes."""

    def weigh(phase: str, source: Mapping[str, Any] = run) -> float:
        counted = [Passes(**phases.get(phase, {})) for phases in source["passes"].values()]
        return mean(p.forward_backward + p.forward / 3 for p in counted)

    unit = weigh("dense", dense)
    if run["variant"] == "dense":
        return {"dense": 1.0}
    find = sum(weigh(phase) for phase in ("dense", "localize")) / unit
    trained = find + weigh("region") / unit
    borrowed = 0.0 if weigh("dense") else 1.0
    return {"find": find, "graft": find + borrowed, "retrained": trained, "continual": trained}


def _own(name: str) -> dict[str, Any]:
    return {} if "grafting.localizer" in VARIANTS[name] else {"grafting.localizer": name}


def _choose_variants(text: str | None, parser: argparse.ArgumentParser) -> list[str]:
    wanted = list(VARIANTS) if text is None else [name.strip() for name in text.split(";")]
    unknown = [name for name in wanted if name not in VARIANTS]
    if unknown:
        parser.error(f"unknown: {'; '.join(unknown)}; there are {'; '.join(VARIANTS)}")
    return wanted


def _spread(values: Sequence[float]) -> dict[str, Any]:
    return {"mean": mean(values), "sd": stdev(values) if len(values) > 1 else None}


if __name__ == "__main__":
    main()
