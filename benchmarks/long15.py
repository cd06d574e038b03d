"""Long-15 in its three orders, a head a task: grafting beside strategies of the field, tuned alike.

The fifteen tasks with 1,000 training rows each, each seen once. Order 4 has all strategies, orders
5 and 6 have the four of OTHER_ORDERS. Before anything is compared, the dense rate is chosen among
four by independent fine-tuning, and every strategy's own values from its grid
(`cl-graft strategies`), on dev rows of two tasks (TUNED_ON) with seed 0. The choice holds for all
orders and seeds. Choices and finished runs (a strategy with a seed on an order) go to
``benchmarks/results/long15-<scale>.json`` and ``.md`` one by one and are not computed again, so the
benchmark goes on there, also on another machine. The data is found through the environment variable
CL_GRAFT_DATA or ``--data``. Needs ``pip install 'cl-graft[peft]'``.

    python benchmarks/long15.py                                # MiniLM: hours a seed on one core
    python benchmarks/long15.py --orders 4 --seeds 0
    python benchmarks/long15.py --orders 4 --seeds 0 --strategies grafting,independent
    python benchmarks/long15.py --scale smoke                  # does it run?

Measures of a seed are averaged over its orders before seeds are: they share rows and base.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Any

from baselines import shared_rate
from common import (
    choose_seeds,
    describe_run,
    make_config,
    make_parser,
    parse_options,
    summarize_seeds,
    write_results,
)

from cl_graft.lab.experiments.comparison.tuning import tune, with_values
from cl_graft.lab.experiments.run import run
from cl_graft.lab.results.run_results import RunResult
from cl_graft.settings import ExperimentConfig
from cl_graft.settings.run_files import CACHE
from cl_graft.storage.cache_folder import DirectoryCache
from cl_graft.strategies.registry import find_strategy

STRATEGIES = ["grafting", "independent", "naive", "o_lora", "lora", "sequential_lora"]
STRATEGIES += ["replay", "ewc"]
OTHER_ORDERS = STRATEGIES[:4]
TUNED_ON = ["yelp", "amazon"]
MEASURES = {
    "average_accuracy": "average accuracy",
    "backward_transfer": "backward transfer",
    "forgetting": "forgetting",
}
SCALES: dict[str, dict[str, Any]] = {
    "smoke": {
        "stream.max_train": 100,  # CB's rarest class has 6 % of its rows
        "stream.max_dev": 8,
        "stream.max_test": 8,
        "stream.max_length": 16,
        "fine_tuning.steps": 2,
        "fine_tuning.evaluations": 1,
        "comparison.seeds": [0],
    },
    "cpu": {
        "stream.max_train": 1000,
        "stream.max_dev": 100,
        "stream.max_test": 100,
        "stream.max_length": 64,
        "fine_tuning.steps": 125,
        "fine_tuning.evaluations": 2,
        "fine_tuning.group_by_length": True,
        "grafting.localizer": "movement",
        "grafting.density": 0.003,
        "comparison.seeds": [0, 1, 2],
    },
}


def main() -> None:
    """Make the missing runs, seed by seed, and store the results after each."""
    parser = make_parser(str(__doc__).splitlines()[0], SCALES, seeds=True)
    parser.add_argument("--orders", default="4,5,6", help="by comma; default: 4,5,6")
    parser.add_argument("--strategies", default=",".join(STRATEGIES), help="by comma; default: all")
    arguments = parse_options(parser, "long15")
    base = order_config("4", arguments)
    tuned_on = order_config("4", arguments, {"stream.tasks": TUNED_ON, "comparison.tune": True})
    cache = DirectoryCache(arguments.out / CACHE)
    stored = read_stored(arguments)
    stored |= describe_run("long15.py", base, arguments)
    chosen, runs = stored["chosen"], stored["runs"]
    if "dense" not in chosen:
        chosen["dense"] = shared_rate(tuned_on, arguments.out / "dense")
        keep(stored, arguments)
    rate = {"fine_tuning.lr": chosen["dense"]["lr"]}
    for order, strategy, seed in list_runs(arguments, choose_seeds(arguments, base)):
        own = runs.setdefault(order, {}).setdefault(strategy, {})
        if str(seed) in own:
            continue
        if strategy not in chosen:
            tuning = tune(tuned_on.with_values(rate), strategy, out=arguments.out, cache=cache)
            chosen[strategy] = asdict(tuning)
            keep(stored, arguments)
        values = chosen[strategy]["chosen"]
        config = with_values(
            order_config(order, arguments).with_values(rate), find_strategy(strategy), values
        )
        out = arguments.out / f"order{order}"
        own[str(seed)] = summarize_run(
            run(config, strategy=strategy, seed=seed, out=out, cache=cache)
        )
        keep(stored, arguments)


def order_config(
    order: str, arguments: argparse.Namespace, changes: Mapping[str, Any] | None = None
) -> ExperimentConfig:
    """Return the config of an order at the scale that was asked for, without chosen values."""
    values = {"stream.name": f"long15-order{order}", **SCALES[arguments.scale], **(changes or {})}
    return make_config(values, arguments.data, arguments.sets)


def list_runs(
    arguments: argparse.Namespace, seeds: Sequence[int]
) -> Iterator[tuple[str, str, int]]:
    """Yield order, strategy and seed of the runs that were asked for, seed by seed."""
    asked = arguments.strategies.split(",")
    for seed in seeds:
        for order in arguments.orders.split(","):
            known = STRATEGIES if order == "4" else OTHER_ORDERS
            for strategy in known:
                if strategy in asked:
                    yield order, strategy, seed


def read_stored(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the choices and runs that are stored already."""
    path = arguments.results / f"long15-{arguments.scale}.json"
    return json.loads(path.read_text()) if path.is_file() else {"chosen": {}, "runs": {}}


def keep(stored: Mapping[str, Any], arguments: argparse.Namespace) -> None:
    """Store choices and runs."""
    write_results("long15", arguments, stored, write_table(stored["runs"]))


def summarize_run(result: RunResult) -> dict[str, Any]:
    """Return what results keep of a run."""
    return {
        "learned": [row[place] for place, row in enumerate(result.R)],
        "end": result.R[-1],
        **{name: getattr(result, name) for name in MEASURES},
        "bytes": fmean(result.bytes[task] for task in result.tasks),
        "minutes": sum(sum(phases.values()) for phases in result.seconds.values()) / 60,
        "minutes_saved": sum(sum(own.values()) for own in result.seconds_saved.values()) / 60,
        "tasks": result.tasks,
    }


def write_table(runs: Mapping[str, Any]) -> str:
    """Return the table of all orders and of their mean, as Markdown; scores in %."""
    lines = [
        f"| order | strategy | {' | '.join(MEASURES.values())} | kB a task | minutes | seeds |",
        "| --- | --- |" + " ---: |" * (len(MEASURES) + 3),
    ]
    for order, found in runs.items():
        lines += [write_row(order, name, [own]) for name, own in found.items() if own]
    if len(runs) > 1:
        for name in OTHER_ORDERS:
            everywhere = [found.get(name, {}) for found in runs.values()]
            if set.intersection(*(set(own) for own in everywhere)):
                lines.append(write_row(f"mean of {len(runs)}", name, everywhere))
    return "\n".join(lines) + "\n"


def write_row(order: str, strategy: str, found: Sequence[Mapping[str, Any]]) -> str:
    """Return a row of the table."""
    seeds = sorted(set.intersection(*(set(own) for own in found)))
    by_seed = [[own[seed] for own in found] for seed in seeds]
    shown = [
        write_spread(fmean(100 * one[name] for one in runs) for runs in by_seed)
        for name in MEASURES
    ]
    size, minutes = (
        fmean(one[name] for runs in by_seed for one in runs) for name in ("bytes", "minutes")
    )
    row = [order, strategy, *shown, f"{size / 1000:,.0f}", f"{minutes:.0f}", str(len(seeds))]
    return f"| {' | '.join(row)} |"


def write_spread(values: Iterable[float]) -> str:
    """Return the mean over seeds, and half of its 95 % interval where there are three."""
    spread = summarize_seeds(values)
    half = "" if spread["interval"] is None else f" ± {spread['interval'][1] - spread['mean']:.1f}"
    return f"{spread['mean']:.1f}{half}"


if __name__ == "__main__":
    main()
