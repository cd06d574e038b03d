"""The region of one task: its graft as a file, its scores, and its place in the model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cl_graft.errors import InputError
from cl_graft.grafts.graft import Graft, gather, grafted, snapshot
from cl_graft.grafts.model_state import replace_parameters
from cl_graft.grafts.region import Parameters, Region, anatomy
from cl_graft.lab.experiments.run_setup import load_stream
from cl_graft.lab.figures import Score, png, score_curves, share_heatmaps
from cl_graft.lab.results.run_results import machine
from cl_graft.localization import Ranking, find_localizer
from cl_graft.localization.grafting_settings import GraftingSettings, head_rate
from cl_graft.localization.reach import find_reach
from cl_graft.localization.region_search import find_region, rank_task
from cl_graft.metrics import score
from cl_graft.models.graftable import weight_scale
from cl_graft.runtime.devices import pick_device
from cl_graft.runtime.run_context import RunContext
from cl_graft.settings import ExperimentConfig, config_from, to_dotted
from cl_graft.settings.bank_metadata import base_identity
from cl_graft.settings.run_files import versions
from cl_graft.settings.schedule_of_task import choose, list_schedules
from cl_graft.settings.tasks import load_tasks
from cl_graft.storage import StoredGraft, only_writer, save_graft
from cl_graft.storage.cache_folder import DirectoryCache
from cl_graft.storage.files import replace_file
from cl_graft.strategies import text_model
from cl_graft.strategies.experience_tasks import make_stream_task
from cl_graft.strategies.task_heads import copy_head_state
from cl_graft.training.dense_run import DenseRun, fine_tune_task
from cl_graft.training.graft_retraining import train_region

DENSITIES = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
"""Densities at which grafts are scored, whatever the density of the region."""

_STREAM_SETTINGS = (
    *("stream.scenario", "stream.classes_per_experience", "comparison.strategies"),
    *("comparison.strategy_settings", "comparison.sweep", "comparison.orders", "comparison.tune"),
    *("comparison.bytes_per_task", "grafting.mode", "grafting.avoid_owned", "grafting.retrain"),
    *("grafting.dropout", "grafting.evaluations", "grafting.keep_standalone"),
    "grafting.mask_candidates",
)


@dataclass(frozen=True)
class LocalizedTask:
    """The region of one task, and scores on the test rows by method, as fractions.

    Methods are ``"fine-tuning"``, ``"graft"`` and ``"re-trained graft"``.
    """

    task: str
    coordinates: int
    density: float
    scores: dict[str, float]
    folder: Path


def refuse_stream_settings(config: ExperimentConfig) -> None:
    """Raise an InputError if a setting that only streams read is not as its preset has it."""
    preset = config_from({"stream": {"tasks": config.stream.tasks}, "preset": config.preset})
    given, plain = to_dotted(config.values()), to_dotted(preset.values())
    for name in _STREAM_SETTINGS:
        if given[name] != plain[name]:
            raise InputError(
                f"{name} is a setting of streams: an experiment on single tasks, and localize, do "
                "not read it; leave it out"
            )


def localize_task(config: ExperimentConfig, *, out: Path | str) -> LocalizedTask:
    """Fine-tune on one task, find its region, and write graft, numbers and figures.

    The graft has the tuned values of the region. Beside it stands what the region gives when it is
    trained again from the base.

    The config's first task is taken, with its first seed. The folder also keeps the dense run:
    another density needs no second one.

    Raises:
        InputError: If settings or data cannot be used.
    """
    refuse_stream_settings(config)
    with only_writer(out):
        return _localize(config, Path(out))


def _localize(config: ExperimentConfig, out: Path) -> LocalizedTask:
    single = _SingleTask(config, DirectoryCache(out / "cache"))
    name, run = single.name, single.dense()
    ranking = single.ranking(run)
    region = single.region(run)
    graft = gather(run.tuned, region)
    with (
        replace_parameters(single.task.parameters, run.tuned),
        replace_parameters(single.task.head, run.head),
    ):
        tuned = single.logits()
    with single.with_graft(*single.retrain(region)):
        again = single.logits()
    scores = {
        "fine-tuning": single.score(tuned),
        "graft": single.score(single.answers(region, run)),
        "re-trained graft": single.score(again),
    }
    most, total = len(ranking.order), ranking.layout.total
    sizes = {min(most, max(1, round(density * total))) for density in DENSITIES} | {len(region)}
    by_density = {
        size / region.layout.total: single.score(single.answers(ranking.top(size), run))
        for size in sorted(sizes)
    }
    metadata = {"labels": list(single.label_names), "scores": scores}
    save_graft(
        StoredGraft(graft, single.identity, name, head=single.copy_head(run), metadata=metadata),
        out / "graft.safetensors",
    )
    numbers = {**single.describe(region), "scores": scores}
    numbers["score by density"] = [list(point) for point in by_density.items()]
    replace_file(out / "numbers.json", json.dumps(numbers, indent=1).encode())
    figures = _draw(name, region, fine_tuned=scores["fine-tuning"], grafts=by_density)
    for called, figure in figures.items():
        replace_file(out / f"{called}.png", png(figure, dpi=120))
    return LocalizedTask(name, len(region), region.density, scores, out)


def _draw(
    name: str, region: Region, *, fine_tuned: float, grafts: Mapping[float, float]
) -> dict[str, Any]:
    """Return the figures `densities`, with scores of grafts by density, and `anatomy`."""
    line = Score(name, "fine-tuning", None, fine_tuned, 0.0)
    points = [Score(name, "graft", x, y, 0.0) for x, y in grafts.items()]
    title, axis = f"Grafts of {name}", "density"
    densities = score_curves(
        [line, *points], title=title, measure="score", axis=axis, logarithmic=True
    )
    shares = {(kind, layer): share for (layer, kind), share in _shares(region)}
    heatmap = share_heatmaps(
        {f"{len(region):,} coordinates, share in %": shares},
        title=f"Where the region of {name} lies",
        x_label="layer",
        y_label="kind of parameter",
    )
    return {"densities": densities, "anatomy": heatmap}


class _SingleTask:
    """The first task of a config on a model at its base, without a stream."""

    def __init__(self, config: ExperimentConfig, cache: DirectoryCache) -> None:
        self.seed, self._context = config.comparison.seeds[0], RunContext(cache)
        self.config = config.with_values({"stream.tasks": config.stream.tasks[:1]})
        self.device = pick_device(config.model.device)
        tasks = load_tasks(self.config.stream, seed=self.seed)
        loaded, stream = load_stream(self.config, tasks)
        self.identity = base_identity(loaded, self.config, seed=self.seed)
        (self.name,), (encoded,) = stream.names, stream.tasks
        self._splits, self.label_names = encoded.splits, encoded.task.label_names
        self._metric = encoded.scored_by
        model = text_model(loaded, stream, seed=self.seed).to(self.device).eval()
        self.task = make_stream_task(
            model, stream, 0, base=self.identity.fingerprint, seed=self.seed
        )
        self.schedule = choose(
            self.task, list_schedules(config, encoded.task), seed=self.seed, context=self._context
        )

    def dense(self) -> DenseRun:
        path = find_localizer(self.config.grafting.localizer).needs_path
        return fine_tune_task(
            self.task, self.schedule, seed=self.seed, path=path, context=self._context
        )

    @property
    def settings(self) -> GraftingSettings:
        """Settings of grafting, among all coordinates whatever `mask_candidates` says."""
        settings = self.config.grafting.of_task(self.schedule, seed=self.seed)
        return replace(settings, mask_candidates=None)

    def ranking(self, run: DenseRun) -> Ranking:
        """Rank all coordinates that the localizer may choose."""
        task, settings = self.task, self.settings
        reach = find_reach(task.model, task.parameters, settings)
        k = min(reach.total, settings.coordinates(reach.layout.total))
        return rank_task(task, settings, run, k=k, context=self._context)

    def region(self, run: DenseRun) -> Region:
        return find_region(self.task, self.settings, dense=run, context=self._context).region

    def copy_head(self, run: DenseRun) -> dict[str, Tensor]:
        """Return the state of the dense run's head as banks store heads."""
        with replace_parameters(self.task.head, run.head):
            return copy_head_state(self.task.model, 0)

    def describe(self, region: Region) -> dict[str, Any]:
        """Return what the numbers of a region belong to, as JSON values."""
        return {
            "task": self.name,
            "coordinates": len(region),
            "density": region.density,
            "anatomy": [
                {"layer": int(layer), "kind": kind, "share": share}
                for (layer, kind), share in _shares(region)
            ],
            "config": self.config.with_values({"stream.data": None}).values(),
            "versions": versions(self.device),
            "machine": machine(self.device),
        }

    def retrain(self, region: Region) -> tuple[Graft, dict[str, Tensor]]:
        """Train the region again from the base, as runs do."""
        scale = weight_scale(self.task.model)
        plan = self.config.region_schedule(self.schedule, coordinates=len(region), scale=scale)
        head, grafting = snapshot(self.task.head), self.config.grafting
        head_lr = grafting.head_lr
        if head_lr is None and grafting.lr is None:
            size = sum(value.numel() for value in head.values())
            head_lr = head_rate(plan.optimizer, size, scale=scale, region=plan.lr)
        return train_region(self.task, region, plan, head=head, seed=self.seed, head_lr=head_lr)

    @contextmanager
    def with_graft(self, graft: Graft, head: Parameters) -> Iterator[None]:
        with grafted(self.task.model, graft), replace_parameters(self.task.head, head):
            yield

    def answers(self, region: Region, run: DenseRun) -> Tensor:
        """Answer the test rows with the tuned values of a region on the base: logits."""
        with self.with_graft(gather(run.tuned, region), run.head):
            return self.logits()

    def logits(self) -> Tensor:
        """Answer the test rows with the model as it is now: fp32 logits on the CPU."""
        inputs, _ = self._splits["test"]
        self.task.model.eval()
        with torch.no_grad():
            parts = inputs.split(self.config.training.eval_batch)
            return torch.cat([self.task.forward(p.to(self.device)).float().cpu() for p in parts])

    def score(self, logits: Tensor) -> float:
        return score(logits, self._splits["test"][1], self._metric)


def _shares(region: Region) -> Iterator[tuple[tuple[str, str], float]]:
    """Yield (layer, kind of parameter) with the share of the region there."""
    counted = anatomy(region)
    for row, layer in enumerate(counted.layers):
        for column, kind in enumerate(counted.kinds):
            if counted.sizes[row, column]:
                yield (str(layer), kind), float(counted.counts[row, column]) / len(region)
