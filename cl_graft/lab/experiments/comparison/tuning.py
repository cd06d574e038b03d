"""Tuning: a strategy's small grid, chosen on dev rows of the first two tasks.

Every combination of `Method.grid` is a run of its own, on a stream of the first two tasks
whose test rows are their dev rows, so that neither test rows nor later tasks have an influence. The
choice is made once, with the seed 0, and holds for every seed of a comparison.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from cl_graft.data import TextTask
from cl_graft.errors import DivergedError, ForeignFile, InputError
from cl_graft.grafts.region import Layout
from cl_graft.lab.experiments import folders
from cl_graft.lab.experiments.run import run
from cl_graft.lab.results.measures import has_one_metric
from cl_graft.lab.results.run_results import RunResult
from cl_graft.localization.grafting_settings import region_rate
from cl_graft.metrics.by_metric import average_share, too_small
from cl_graft.models.graftable import graftable_parameters, weight_scale
from cl_graft.models.task_model import TaskModel
from cl_graft.runtime.progress import Progress, rename_steps, silent
from cl_graft.runtime.signals import Stop
from cl_graft.settings import ExperimentConfig
from cl_graft.settings.bank_metadata import load_base_model
from cl_graft.settings.tasks import load_tasks
from cl_graft.storage.cache_folder import DirectoryCache
from cl_graft.storage.files import dump_json, load_json, replace_file
from cl_graft.strategies.method import Method, Value
from cl_graft.strategies.registry import find_strategy

TUNING_SEED = 0
"""Seed of tuning, whatever the seeds of the comparison: more of them may be added later."""

_TASKS = 2
_REGION_RATE = "grafting.lr"
_ADAMW_SHARES = (0.1, 0.3, 1.0, 3.0)  # of the default rate of a region of this density
_CHOSEN = "chosen.json"
_FORMAT = "cl-graft-tuning"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Tuning:
    """The values of a grid that were tried for a strategy, and the combination that was chosen.

    Scores have the ``"values"`` and the ``"score"`` (`score_candidates`) of each combination; null
    where training diverged.
    """

    grid: Mapping[str, Sequence[Value]] = field(default_factory=dict)
    tasks: Sequence[str] = ()
    scores: Sequence[Mapping[str, Any]] = ()
    chosen: Mapping[str, Value] = field(default_factory=dict)


def list_grid(
    method: Method, config: ExperimentConfig, *, base: TaskModel | None = None
) -> tuple[dict[str, tuple[Value, ...]], list[dict[str, Value]]]:
    """Return the part of a strategy's grid that the config does not set, and all its combinations.

    Rates of regions by AdamW are around the default for the config's density in `base`.
    """
    given = config.comparison.strategy_settings.get(method.name, {})
    grid = {name: values for name, values in method.grid.items() if name not in given}
    if base and _REGION_RATE in grid and config.grafting.optimizer == "adamw":
        localizer = method.fixed_config.get("grafting.localizer", config.grafting.localizer)
        k = config.grafting.coordinates(Layout.of(graftable_parameters(base)).total)
        rate = region_rate("adamw", k, scale=weight_scale(base), localizer=localizer)
        grid[_REGION_RATE] = tuple(float(f"{share * rate:.2g}") for share in _ADAMW_SHARES)
    combined = itertools.product(*grid.values())
    return grid, [dict(zip(grid, values, strict=True)) for values in combined] if grid else []


def with_values(
    config: ExperimentConfig, method: Method, values: Mapping[str, Value]
) -> ExperimentConfig:
    """Return the config of single runs of a strategy with some values chosen."""
    known = {setting.name for setting in method.settings}
    chosen = {name: value for name, value in values.items() if name in known}
    fields: dict[str, Any] = {n: value for n, value in values.items() if n not in known}
    settings = dict(config.comparison.strategy_settings)
    if chosen:
        settings[method.name] = {**settings.get(method.name, {}), **chosen}
    return config.with_values(
        {**fields, "comparison.strategy_settings": settings, "comparison.tune": False}
    )


def use_dev_as_test(tasks: Sequence[TextTask], *, count: int = _TASKS) -> tuple[TextTask, ...]:
    """Return the first `count` tasks with their dev rows in the place of their test rows."""
    return tuple(
        replace(task, test=task.dev, source={**task.source, "test": "the dev rows"})
        for task in tasks[:count]
    )


def best(scores: Sequence[float | None]) -> int:
    """Return the place of the highest score, of equal ones the first; a ValueError without any."""
    if all(score is None for score in scores):
        raise ValueError(f"expected a score, got {list(scores)}")
    known = [-math.inf if score is None else score for score in scores]
    return known.index(max(known))


def score_candidates(results: Sequence[RunResult | None]) -> list[float | None]:
    """Score the runs of all combinations of a grid; None where training diverged, but not all did.

    The score is the average accuracy at the end. Where tasks have different metrics, it is the mean
    over tasks of the score as a share of the best of all; a task whose best is too small to take a
    share of it (`cl_graft.metrics.by_metric.LEAST_REFERENCE`) is left out, and without any task all
    are 0.
    """
    known = [result for result in results if result is not None]
    first = known[0]
    if has_one_metric(first.metrics):
        return [None if result is None else result.average_accuracy for result in results]
    best_scores: dict[str, float] = {}
    for result in known:
        for task, score in zip(first.tasks, result.R[-1], strict=True):
            if score is not None:
                best_scores[task] = max(score, best_scores.get(task, -math.inf))
    left_out = too_small([best_scores])
    places = [j for j, task in enumerate(first.tasks) if task not in left_out]
    top = [best_scores.get(first.tasks[j]) for j in places]
    if not places:
        logger.warning("no score on dev is worth choosing by: the first values are taken")
    return [
        None if result is None else average_share([result.R[-1][j] for j in places], top) or 0.0
        for result in results
    ]


def tune(
    config: ExperimentConfig,
    strategy: str,
    *,
    out: Path | str,
    cache: DirectoryCache,
    progress: Progress = silent,
    stop: Stop | None = None,
    started_by: str | None = None,
) -> Tuning:
    """Choose a strategy's values, into ``OUT/tuning/<strategy>/``; a choice that is there is read.

    A combination whose training diverges is passed over.

    Raises:
        DivergedError: If every combination's training diverges.
    """
    if (stored := stored_tuning(config, strategy, out=out)) is not None:
        return stored
    method, folder = find_strategy(strategy), _folder(out, strategy)
    by_base = _REGION_RATE in method.grid and config.grafting.optimizer == "adamw"
    grid, candidates = list_grid(
        method, config, base=load_base_model(config.model).model if by_base else None
    )
    tasks = use_dev_as_test(load_tasks(config.stream, seed=TUNING_SEED))
    results: list[RunResult | None] = []
    for values in candidates:
        name = ",".join(f"{setting}={value}" for setting, value in values.items())
        try:
            result = run(
                with_values(config, method, values),
                strategy=strategy,
                seed=TUNING_SEED,
                out=folder / name,
                tasks=tasks,
                cache=cache,
                progress=rename_steps(progress, f"{{}} {name}".format),
                started_by=started_by,
                stop=stop,
            )
            results.append(result)
        except DivergedError as error:
            logger.warning("%s with %s: %s; the choice goes on without it", strategy, name, error)
            results.append(None)
    if all(result is None for result in results):
        raise DivergedError(f"{strategy}: training diverges with every value of its grid")
    scores = score_candidates(results)
    tuning = Tuning(
        grid={name: list(values) for name, values in grid.items()},
        tasks=[task.name for task in tasks],
        scores=[
            {"values": values, "score": score}
            for values, score in zip(candidates, scores, strict=True)
        ],
        chosen=candidates[best(scores)],
    )
    replace_file(folder / _CHOSEN, dump_json(asdict(tuning), format=_FORMAT))
    return tuning


def stored_tuning(config: ExperimentConfig, strategy: str, *, out: Path | str) -> Tuning | None:
    """Return the stored choice for a strategy; None if there is none yet.

    A comparison keeps its choices, also where a later version of the package has wider grids. Where
    there is nothing to choose, an empty `Tuning`.
    """
    if not config.comparison.tune or not list_grid(find_strategy(strategy), config)[1]:
        return Tuning()
    path = _folder(out, strategy) / _CHOSEN
    if not path.is_file():
        return None
    try:
        return Tuning(**load_json(path.read_bytes(), format=_FORMAT, name=str(path)))
    except (ForeignFile, TypeError) as error:
        raise InputError(f"{path}: not a choice of values: {error}") from None


def runs_to_choose(config: ExperimentConfig) -> int:
    """Return how many runs of two tasks a comparison makes to choose values."""
    if not config.comparison.tune:
        return 0
    return sum(len(list_grid(find_strategy(n), config)[1]) for n in config.comparison.strategies)


def _folder(out: Path | str, strategy: str) -> Path:
    return Path(out) / folders.TUNING / strategy
