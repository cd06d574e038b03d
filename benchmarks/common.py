"""Scales, options, configs and folders that benchmarks on real streams share."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cl_graft.lab.experiments.engines import PoolEngine, ray_pool
from cl_graft.lab.results.run_results import machine
from cl_graft.lab.results.strategy_statistics import spread_over_seeds
from cl_graft.runtime.devices import pick_device
from cl_graft.settings import ExperimentConfig, load_config
from cl_graft.settings.run_files import versions

RESULTS = Path(__file__).parent / "results"
SMOKE: dict[str, Any] = {
    "stream.shots": 16,
    "fine_tuning.steps": 4,
    "fine_tuning.evaluations": 1,
    "stream.max_dev": 16,
    "stream.max_test": 32,
    "grafting.mask_steps": 2,
    "grafting.mask_batch": 32,
    "comparison.seeds": [0],
}
"""Settings that only say whether it runs."""
SHOTS_128: dict[str, Any] = {
    "stream.shots": 128,
    "fine_tuning.steps": 150,
    "fine_tuning.group_by_length": True,
    "fine_tuning.evaluations": 2,
    # A choice between values needs more rows than 128 of a class and dev's usual share give.
    "stream.max_dev": 256,
    "stream.max_test": 300,
    "grafting.density": 0.003,
    "grafting.mask_steps": 8,
    "grafting.mask_batch": 64,
    "comparison.seeds": [0, 1, 2],
}
"""Settings at which a run of five tasks takes two to three minutes on one core."""


STORED_RECIPE: dict[str, Any] = {
    "grafting.localizer": "learned_mask",
    "grafting.dense_share": 1.0,
    "grafting.optimizer": "sgd",
}
"""How regions of the stored results were found and trained, where a script says nothing else."""

STREAM_RECIPE: dict[str, Any] = {**STORED_RECIPE, "grafting.dropout": True}
"""The same in streams; experiments on single tasks do not read the dropout."""


def make_parser(
    description: str, scales: Collection[str], *, seeds: bool = False, workers: bool = False
) -> argparse.ArgumentParser:
    """Return a parser of the options that all have."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--scale", choices=scales, default="cpu")
    parser.add_argument(
        "--data",
        type=Path,
        default=os.environ.get("CL_GRAFT_DATA"),
        help="folder of the tasks; default CL_GRAFT_DATA, else the Hugging Face hub",
    )
    parser.add_argument("--out", type=Path, help="where runs go; default runs/<name>-<scale>")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the summary goes")
    parser.add_argument("--set", dest="sets", action="append", default=[], metavar="NAME=VALUE")
    if seeds:
        parser.add_argument(
            "--seeds", help="the seeds to run, such as 0,2; default: those of the scale"
        )
    if workers:
        parser.add_argument("--workers", type=int, help="runs at once; default: one, without Ray")
    return parser


def parse_options(parser: argparse.ArgumentParser, name: str) -> argparse.Namespace:
    """Parse the command line."""
    arguments = parser.parse_args()
    arguments.out = arguments.out or Path("runs") / f"{name}-{arguments.scale}"
    return arguments


def make_config(
    values: Mapping[str, Any],
    data: Path | str | None,
    sets: Sequence[str] = (),
    recipe: Mapping[str, Any] = STREAM_RECIPE,
) -> ExperimentConfig:
    """Return the config of values and a recipe on data, or the hub, changed by what --set says."""
    is_preset = any(change.startswith("preset=") for change in sets)
    given = {**({} if is_preset else recipe), **values}
    given["stream.data"] = None if data is None else str(data)
    return load_config(None, [*(f"{k}={json.dumps(v)}" for k, v in given.items()), *sets])


def stored_config(config: ExperimentConfig) -> dict[str, Any]:
    """Return a config as results keep it, without this machine's folder of data."""
    data = "$CL_GRAFT_DATA" if config.stream.data else None
    return config.with_values({"stream.data": data}).values()


def format_command(script: str) -> str:
    """Return the command that was given, the script by its place in the project."""
    return shlex.join(["python", f"benchmarks/{script}", *sys.argv[1:]])


def summarize_seeds(values: Iterable[float | None]) -> dict[str, Any]:
    """Return the mean and spread of a number over seeds, as results keep them."""
    return asdict(spread_over_seeds(values))


def hide_paths(text: str, arguments: argparse.Namespace) -> str:
    """Say by name where things lay, not by path."""
    places = {arguments.out: "OUT", arguments.results: "RESULTS", arguments.data: "$CL_GRAFT_DATA"}
    places = {path: name for path, name in places.items() if path not in (None, Path())}
    for path, name in sorted(places.items(), key=lambda place: -len(str(place[0]))):
        text = text.replace(str(path), name)  # the inner one of two first
    return text


def describe_run(
    script: str, config: ExperimentConfig, arguments: argparse.Namespace
) -> dict[str, Any]:
    """Return command, config, machine and versions, as results keep them."""
    device = pick_device(config.model.device)
    return {
        "command": hide_paths(format_command(script), arguments),
        "config": stored_config(config),
        "machine": machine(device),
        "versions": versions(device),
    }


def write_results(
    name: str, arguments: argparse.Namespace, stored: Mapping[str, Any], table: str
) -> Path:
    """Write ``<name>-<scale>.json`` and ``.md`` to the folder of results, and print the table."""
    stem = arguments.results / f"{name}-{arguments.scale}"
    stem.parent.mkdir(parents=True, exist_ok=True)
    Path(f"{stem}.json").write_text(json.dumps(stored, indent=1) + "\n")
    Path(f"{stem}.md").write_text(table)
    sys.stdout.write(table)
    return stem


@contextmanager
def open_engine(arguments: argparse.Namespace) -> Iterator[PoolEngine | None]:
    """Open the engine that ``--workers`` asks for; None computes one run after another."""
    if arguments.workers is None:
        yield None
        return
    with closing(ray_pool(workers=arguments.workers)) as pool:
        yield PoolEngine(pool)


def choose_seeds(arguments: argparse.Namespace, config: ExperimentConfig) -> Sequence[int]:
    """Return the seeds that were asked for; else the config's."""
    asked = arguments.seeds
    return [int(seed) for seed in asked.split(",")] if asked else config.comparison.seeds
