"""Running an experiment: cell by cell, each kept in a file, and what all cells say together.

A cell is one sample of the data. An experiment that was interrupted goes on with the first cell
that has no file.
"""

from __future__ import annotations

import json
import logging
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from common import stored_config

import cl_graft
from cl_graft.errors import InputError, find
from cl_graft.lab.figures import png
from cl_graft.lab.results.run_results import machine
from cl_graft.localization import find_localizer
from cl_graft.metrics.statistics import LEAST_SAMPLES
from cl_graft.runtime.devices import pick_device
from cl_graft.settings import ExperimentConfig, config_from, override_, to_nested
from cl_graft.settings.run_files import versions
from cl_graft.storage.cache_folder import DirectoryCache
from cl_graft.storage.files import replace_file
from papers.bench import Bench
from papers.experiments import SCALES, VARIES, Experiment, find_experiment
from papers.figures import draw_figure
from papers.measurements import Measurement, Summary, summarize, table

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """Outcome of an experiment."""

    experiment: Experiment
    rows: list[Summary]
    table: str
    folder: Path


def experiment_config(
    experiment: Experiment, scale: str, *, data: Path | str | None = None, sets: Sequence[str] = ()
) -> ExperimentConfig:
    """Return the settings of an experiment at a scale."""
    data = None if data is None else Path(data)
    given = find(SCALES, scale, missing="unknown scale")
    # The papers' code has no warm-up.
    values: dict[str, Any] = {"fine_tuning.warm_up": 0.0, **given, **experiment.settings}
    if scale == "smoke":
        values |= {"stream.shots": given["stream.shots"]}
    values |= {"cpu": experiment.cpu, "paper": experiment.paper}.get(scale, {})
    values["stream.tasks"] = list(experiment.list_tasks(scale))
    if data is not None:
        values["stream.data"] = str(data)
    settings = to_nested(values)
    for override in sets:
        override_(settings, override)
    return config_from(settings, source=f"experiment {experiment.name}")


def run_experiment(
    name: str,
    *,
    out: Path | str,
    scale: str = "cpu",
    data: Path | str | None = None,
    seeds: Sequence[int] | None = None,
    sets: Sequence[str] = (),
    on_cell: Callable[[int, int], None] | None = None,
) -> Outcome:
    """Run the cells of an experiment that are missing, and write what all of them say."""
    out = Path(out)
    data = None if data is None else Path(data)
    experiment = find_experiment(name)
    config = experiment_config(experiment, scale, data=data, sets=sets)
    _check_regions(experiment, config)
    seeds = experiment.seeds(scale) if seeds is None else list(seeds)
    if experiment.conclude is not None and len(seeds) < LEAST_SAMPLES:
        raise InputError(
            f"{name} tests cells against chance, of which {len(seeds)} say nothing: ask for "
            f"{LEAST_SAMPLES} or more, as in --seeds 0,1,2"
        )
    folder, kept = out / name, out / (experiment.cells or name)
    settings = config.with_values({"comparison.strategies": ["grafting"]}).values()
    own: dict[str, Any] = {"version": cl_graft.__version__, "config": settings}
    cells: list[_Cell] = []
    for place, seed in enumerate(seeds):
        file = kept / f"cell{seed}.json"
        own["cell"] = seed
        cell = _read_cell(file, own)
        if cell is None:
            started = time.perf_counter()
            bench = _bench(experiment, config, seed, DirectoryCache(out / "cache"))
            cell = _Cell(list(experiment.run(bench)), time.perf_counter() - started)
            kept.mkdir(parents=True, exist_ok=True)
            replace_file(file, json.dumps({**own, **asdict(cell)}, indent=1).encode())
        cells.append(cell)
        if on_cell is not None:
            on_cell(place + 1, len(seeds))
    folder.mkdir(parents=True, exist_ok=True)
    command = _command(name, scale, seeds=seeds, sets=sets, with_data=data is not None)
    return _write_results(experiment, config, cells, seeds, folder, scale=scale, command=command)


def _check_regions(experiment: Experiment, config: ExperimentConfig) -> None:
    """Refuse what an experiment cannot localize by, before anything is computed."""
    if find_localizer(config.grafting.localizer).needs_path and not experiment.own_runs:
        raise InputError(
            f"{config.grafting.localizer} looks at gains gathered along a task's own dense run, "
            f"which is not what {experiment.name} localizes; choose another localizer"
        )


@dataclass(frozen=True)
class _Cell:
    """Outcome of a cell, and the seconds it took; None if that is not known."""

    measurements: list[Measurement]
    seconds: float | None


def _bench(
    experiment: Experiment, config: ExperimentConfig, seed: int, cache: DirectoryCache
) -> Bench:
    """Return the bench of a cell, with what differs between cells drawn by `seed`."""
    if experiment.varies == "seed":
        config = config.with_values({"comparison.seeds": [seed]})
    return Bench(
        config,
        data_seed=seed if experiment.varies == "sample" else 0,
        cell=seed,
        cache=cache,
        kinds=experiment.kinds,
    )


def _write_results(
    experiment: Experiment,
    config: ExperimentConfig,
    cells: Sequence[_Cell],
    seeds: Sequence[int],
    folder: Path,
    *,
    scale: str,
    command: str,
) -> Outcome:
    shown = experiment.shown
    measurements = [cell.measurements for cell in cells]
    rows = [row for row in summarize(measurements) if not shown or row.measure in shown]
    if experiment.conclude is not None:
        rows += summarize([list(experiment.conclude(measurements, rows))])
    device = pick_device(config.model.device)
    drawn = f"{VARIES[experiment.varies]} {', '.join(map(str, seeds))}"
    text = f"# {experiment.title}\n\n{experiment.source}; {drawn}.\n\n"
    text += table(rows, axis=experiment.axis or "x")
    stored = {
        "experiment": experiment.name,
        "title": experiment.title,
        "source": experiment.source,
        "scale": scale,
        "command": command,
        "cells": drawn,
        "seconds": [cell.seconds for cell in cells],
        "rows": [asdict(row) for row in rows],
        "config": stored_config(config.with_values({"model.name": _short_name(config.model.name)})),
        "versions": versions(device),
        "machine": machine(device),
    }
    replace_file(folder / "results.json", json.dumps(stored, indent=1).encode())
    replace_file(folder / "table.md", text.encode())
    replace_file(folder / "picture.png", png(draw_figure(experiment, rows), dpi=120))
    return Outcome(experiment, rows, text, folder)


def _command(
    name: str, scale: str, *, seeds: Sequence[int], sets: Sequence[str], with_data: bool
) -> str:
    """Return what repeats an experiment, without this machine's folders."""
    words = ["python", "benchmarks/paper_experiment.py", name, "--scale", scale]
    if list(seeds) != find_experiment(name).seeds(scale):
        words += ["--seeds", ",".join(str(seed) for seed in seeds)]
    for override in sets:
        key, _, value = override.partition("=")
        words += ["--set", f"{key}={_short_name(value)}"]
    return shlex.join(words) + (" --data $CL_GRAFT_DATA" if with_data else "")


def _short_name(model: str) -> str:
    """Return the name of a model that may be a folder."""
    return Path(model).name if Path(model).is_dir() else model


def _read_cell(file: Path, own: dict[str, Any]) -> _Cell | None:
    """Read a cell that is done; None if there is none, or another one's file has its name."""
    if not file.is_file():
        return None
    try:
        stored = dict(json.loads(file.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        logger.warning("%s is damaged (%s); it is computed again", file, error)
        return None
    for what, name in (("version", "another version of cl_graft"), ("config", "other settings")):
        if stored.get(what) != own[what]:
            raise InputError(
                f"{file} was run with {name}; choose another output folder, or delete it"
            )
    try:
        if stored["cell"] != own["cell"]:
            raise ValueError(f"it is what cell {stored['cell']} gave")
        measurements = [Measurement(**one) for one in stored["measurements"]]
        seconds = stored["seconds"]
    except (ValueError, KeyError, TypeError) as error:
        logger.warning("%s does not fit (%r); it is computed again", file, error)
        return None
    return _Cell(measurements, seconds)
