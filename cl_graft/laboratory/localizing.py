"""Localizing one task: a graft as a file, how good it is, and where it lies."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from cl_graft.experiments.config import ExperimentConfig
from cl_graft.figures.diagrams import png, reliability_diagram
from cl_graft.grafts.anatomy import anatomy
from cl_graft.grafts.graft import Graft
from cl_graft.grafts.model_state import holding
from cl_graft.grafts.region import Region
from cl_graft.laboratory.bench import Bench
from cl_graft.laboratory.grafts import DENSITIES
from cl_graft.laboratory.pictures import picture
from cl_graft.laboratory.readings import Reading, Summary, summarize, table
from cl_graft.laboratory.retraining import retrained
from cl_graft.laboratory.squares import squares
from cl_graft.localization.region_search import find_region
from cl_graft.metrics import agreement, reliability_bins
from cl_graft.results.run_results import machine, versions
from cl_graft.storage import StoredGraft, save_graft
from cl_graft.storage.cache_folder import DirectoryCache
from cl_graft.storage.files import replace_file
from cl_graft.strategies.heads import head_state

__all__ = ["Localized", "localize_task"]

GRAFT, NUMBERS = "graft.safetensors", "numbers.json"


@dataclass(frozen=True)
class Localized:
    """What localizing a task found.

    Attributes:
        task: Its name.
        coordinates: How many the region has.
        density: Their share of the graftable ones.
        rows: Scores, calibration and agreement by method.
        table: The same in Markdown.
        folder: Where the files are.
    """

    task: str
    coordinates: int
    density: float
    rows: list[Summary]
    table: str
    folder: Path


def localize_task(config: ExperimentConfig, *, out: Path | str) -> Localized:
    """Fine-tune on one task, find its region, and write graft, numbers and pictures.

    The graft has the tuned values on the region; beside it, what the region gives when it is
    trained again from the base is measured.

    Args:
        config: The settings; its first task is taken, with its first seed.
        out: The folder, which also keeps the dense run: another density costs no other one.

    Returns:
        The numbers; in the folder are ``graft.safetensors``, ``numbers.json``, ``densities.png``,
        ``anatomy.png``, ``reliability-fine-tuning.png`` and ``reliability-graft.png``.

    Raises:
        InputError: If settings or data cannot be used.
    """
    out = Path(out)
    seed = config.seeds[0] if config.data_seed is None else config.data_seed
    cache = DirectoryCache(out / "cache")
    bench = Bench(config, data_seed=seed, cache=cache)
    name, run = bench.names[0], bench.dense(0)
    settings = bench.localization(0)
    k = settings.coordinates(bench.layout.total)
    ranking = bench.ranking(0, config.localizer, k=k, dense=run)
    region = find_region(bench.problem(0), settings, dense=run, cache=cache).region
    graft = bench.cut(run, region)

    tuned = bench.tuned_answers(0, run)
    grafted = bench.graft_answers(0, graft, run.head)
    again = bench.graft_answers(0, *retrained(bench, 0, region))
    readings = [
        Reading(name, method, measure, value)
        for method, answers in (
            ("fine-tuning", tuned),
            ("graft", grafted),
            ("re-trained graft", again),
        )
        for measure, value in (
            ("score", answers.score),
            ("ECE", answers.ece),
            ("agreement with fine-tuning", agreement(answers.logits, tuned.logits)),
        )
    ]
    curve = [Reading(name, "fine-tuning", "score", tuned.score)]
    most = ranking.order.numel()
    for size in sorted({min(most, bench.size(share)) for share in DENSITIES} | {len(region)}):
        answers = bench.graft_answers(0, bench.cut(run, ranking.top(size)), run.head)
        curve.append(Reading(name, "graft", "score", answers.score, size / bench.layout.total))
    rows, densities = summarize([readings]), summarize([curve])
    places = summarize([list(_places(region))])
    _save(bench, graft, {row.method: row.mean for row in rows if row.measure == "score"}, out)
    numbers = {
        "task": name,
        "coordinates": len(region),
        "density": region.density,
        "rows": [asdict(row) for row in rows],
        "densities": [asdict(row) for row in densities],
        "anatomy": [asdict(row) for row in places],
        "config": {**config.model_dump(mode="json"), "data": None},
        "versions": versions(bench.device),
        "machine": machine(bench.device),
    }
    replace_file(out / NUMBERS, json.dumps(numbers, indent=1).encode())
    pictures = {
        "densities": picture(
            densities,
            title=f"Grafts of {name}",
            measure="score",
            axis="density",
            logarithmic=True,
        ),
        "anatomy": squares(
            places,
            title=f"Where the region of {name} lies",
            measures=[("share of the region", f"{len(region):,} coordinates, share in %")],
            x_label="layer",
            y_label="kind of parameter",
        ),
        "reliability-fine-tuning": reliability_diagram(
            reliability_bins(tuned.probabilities, tuned.targets), title=f"{name}: fine-tuning"
        ),
        "reliability-graft": reliability_diagram(
            reliability_bins(grafted.probabilities, grafted.targets), title=f"{name}: graft"
        ),
    }
    for called, figure in pictures.items():
        replace_file(out / f"{called}.png", png(figure, dpi=120))
    return Localized(name, len(region), region.density, rows, table(rows, axis="x"), out)


def _places(region: Region) -> Iterator[Reading]:
    """Read which share of a region lies in which kind of parameter of which layer."""
    found = anatomy(region)
    for row, layer in enumerate(found.layers):
        for column, kind in enumerate(found.kinds):
            if found.sizes[row, column]:
                share = float(found.counts[row, column]) / len(region)
                yield Reading(str(layer), kind, "share of the region", share)


def _save(bench: Bench, graft: Graft, scores: dict[str, float], out: Path) -> None:
    task, run = bench.problem(0), bench.dense(0)
    with holding(task.head, run.head):
        head = head_state(task.model, 0)
    metadata = {"labels": list(bench.stream.tasks[0].task.label_names), "scores": scores}
    stored = StoredGraft(graft, bench.identity, bench.names[0], head=head, metadata=metadata)
    save_graft(stored, out / GRAFT)
