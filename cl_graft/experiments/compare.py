"""Several strategies and seeds on one stream, side by side.

With `bytes_per_task`, strategies are made as large as that allows; with `tune`, values of a
strategy's own are chosen before its first cell. The cells share a cache, so independent fine-tuning
costs nothing where grafting ran before. The same comparison into the same folder goes on: finished
cells are read, not computed again, and one that was stopped or killed is taken up where it was;
seeds and strategies can be added.
"""

from __future__ import annotations

import functools
import itertools
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import mean
from typing import Any

from cl_graft.errors import InputError
from cl_graft.experiments import folders
from cl_graft.experiments.ahead import with_tasks_ahead
from cl_graft.experiments.base import load_base_model
from cl_graft.experiments.cache import DirectoryCache
from cl_graft.experiments.config import ExperimentConfig
from cl_graft.experiments.devices import pick_device
from cl_graft.experiments.exports import (
    comparison_csv,
    comparison_latex,
    draw_frontier,
    draw_ranks,
)
from cl_graft.experiments.jobs import Engine, Failed, InTurn, Job, chosen_config
from cl_graft.experiments.progress import Progress, Step, silent
from cl_graft.experiments.report import mean_ece, write_comparison_summary
from cl_graft.experiments.results import Comparison, Failure, RunResult, command
from cl_graft.experiments.setup import check_strategy
from cl_graft.experiments.sizing import Sized, sized, sizes_within
from cl_graft.experiments.statistics import differences_of, over_seeds, ranks_of
from cl_graft.experiments.tasks import check_tasks, data_seed_of, load_tasks
from cl_graft.experiments.tuning import stored_tuning
from cl_graft.metrics import (
    accuracy_over_stream,
    backward_transfer_over_stream,
    forward_transfer_over_stream,
)
from cl_graft.models import Loaded
from cl_graft.stopping import Stop
from cl_graft.store import only_writer
from cl_graft.store.files import replace_file
from cl_graft.strategies.table import find_strategy
from cl_graft.tasks import TextTask

__all__ = ["compare", "summarize", "write_summary"]

logger = logging.getLogger(__name__)

_OVER_STREAM = {
    "accuracy": accuracy_over_stream,
    "backward_transfer": backward_transfer_over_stream,
    "forward_transfer": forward_transfer_over_stream,
}


def compare(
    config: ExperimentConfig,
    *,
    out: Path | str,
    progress: Progress = silent,
    started_by: str | None = None,
    stop: Stop | None = None,
    cache: DirectoryCache | None = None,
    engine: Engine | None = None,
) -> Comparison:
    """Run all strategies and seeds of a config into a folder, and sum them up there.

    A cell that fails is reported, and the others go on.

    Args:
        config: The settings.
        out: Gets ``<strategy>/seed<k>/`` for every cell, ``cache/``, ``tuning/`` where values are
            chosen, ``summary.json``, ``.md``, ``.csv`` and ``.tex``, ``frontier.png``, and
            ``ranks.png`` from three strategies on.
        progress: Called after every step of every phase.
        started_by: The command to note as the comparison's; None means this process's.
        stop: Asked after every step whether to stop.
        cache: Keeps tokens, dense runs and rankings; None means ``OUT/cache``.
        engine: Does the cells; None means one after another, here. An engine localizes the tasks
            of grafting's cells first, each as a job of its own.

    Raises:
        InputError: If the folder holds a comparison with another config, another process writes
            to it, model or data cannot be used, or the config asks for several orders; nothing is
            computed then.
        Stopped: If `stop` asked for it.
    """
    if config.orders != 1:
        raise InputError("several orders are several comparisons: compare_orders makes them")
    out = Path(out)
    with only_writer(out):
        cache = DirectoryCache(out / folders.CACHE) if cache is None else cache
        return _compare(
            config, out, progress, started_by or command(), stop or Stop(), cache, engine
        )


def _compare(
    config: ExperimentConfig,
    out: Path,
    progress: Progress,
    started_by: str,
    stop: Stop,
    cache: DirectoryCache,
    engine: Engine | None,
) -> Comparison:
    folders.check_out(out, config)
    tasks = _load_all(config)

    @functools.cache
    def base() -> Loaded:
        """Load the base model, for strategies that can all run."""
        for strategy in config.strategies:
            check_strategy(find_strategy(strategy), config)
        return load_base_model(config)

    budget: dict[str, Any] | None = None
    if config.bytes_per_task is not None:
        budget = _budget(config, config.bytes_per_task, base(), next(iter(tasks.values())))
    own = {
        name: sized(config, name, Sized(**budget["sizes"][name]) if budget else Sized())
        for name in config.strategies
        if not budget or name in budget["sizes"]
    }
    tuned = {name: stored_tuning(settings, name, out=out) for name, settings in own.items()}
    done: dict[tuple[str, int], RunResult] = {}
    jobs: list[Job] = []
    for seed, (strategy, settings) in itertools.product(config.seeds, own.items()):
        cell = Job(strategy, seed, settings, out, started_by)
        choice = tuned[strategy]
        if choice is None:
            to_choose = replace(cell, seed=None)
            cell = replace(cell, needs=frozenset({to_choose.name}))
            jobs += [cell] if to_choose in jobs else [to_choose, cell]
        elif result := folders.finished(cell.folder, chosen_config(settings, strategy, choice)):
            _same_data(result, tasks[data_seed_of(config, seed)])
            done[strategy, seed] = result
        else:
            jobs.append(cell)
    if engine is not None and config.scenario == "task":
        jobs = with_tasks_ahead(jobs, tasks=len(next(iter(tasks.values()))))
    if jobs:
        if engine is None:
            pick_device(config.device)
        for stream in tasks.values():
            check_tasks(stream, base(), config)
    cells_of = {"strategies": config.strategies, "seeds": config.seeds}
    folders.write_config(config, out, **cells_of, command=started_by)
    for strategy, seed in done:
        progress(Step("reused", 1, 1, "", strategy, seed))
    engine = engine or InTurn(cache, tasks)
    failed: list[Failure] = []
    for job, outcome in engine(jobs, progress=progress, stop=stop):
        if job.seed is None or not job.cell:
            continue  # if it failed, so do the cells that wait for it
        if isinstance(outcome, RunResult):
            done[job.strategy, job.seed] = outcome
        elif isinstance(outcome, Failed):
            failed.append(Failure(job.strategy, job.seed, outcome.error))
        _sum_up(config, done, failed, out, started_by, budget)
    logger.info("cache: %s answered, %s computed", dict(cache.hits), dict(cache.misses))
    summary = _sum_up(config, done, failed, out, started_by, budget, whole=not failed)
    return Comparison(out, tuple(_in_order(config, done)), tuple(failed), summary)


def summarize(
    config: ExperimentConfig,
    results: Sequence[RunResult],
    failed: Sequence[Failure] = (),
    *,
    started_by: str | None = None,
    budget: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Sum up finished runs: every measure over seeds, by strategy, and which strategies differ.

    Args:
        config: The settings.
        results: The finished runs.
        failed: The others.
        started_by: The command to note; None means this process's.
        budget: What the strategies were sized to, their sizes, and why others do not fit.
    """
    first = results[0]
    strategies = {
        name: _row([result for result in results if result.strategy == name], first.tasks)
        for name in dict.fromkeys(result.strategy for result in results)
    }
    reference = strategies.get("independent", {}).get("average_accuracy", {}).get("mean")
    for row in strategies.values():
        own = row["average_accuracy"]["mean"]
        row["of_independent"] = own / reference if reference and own is not None else None
    return {
        "tasks": first.tasks,
        "seeds": [seed for seed in config.seeds if any(r.seed == seed for r in results)],
        "strategies": strategies,
        "differences": differences_of(results, reference=_reference(list(strategies))),
        "ranks": ranks_of(results),
        "budget": budget,
        "failed": [{"strategy": f.strategy, "seed": f.seed, "error": f.error} for f in failed],
        "config": config.model_dump(mode="json"),
        "data": first.data,
        "model": first.model,
        "versions": first.versions,
        "machine": first.machine,
        "command": started_by or command(),
    }


def write_summary(summary: Mapping[str, Any], out: Path, *, whole: bool) -> None:
    """Write a summary in all its forms.

    Args:
        summary: What `summarize` returned.
        out: The folder.
        whole: Whether all cells are in it: pictures are drawn then.
    """
    replace_file(out / "summary.json", f"{json.dumps(summary, indent=1)}\n".encode())
    replace_file(out / "summary.csv", comparison_csv(summary).encode())
    replace_file(out / "summary.tex", comparison_latex(summary).encode())
    write_comparison_summary(summary, out)
    if whole:
        draw_frontier(summary, out)
        if summary["ranks"]:
            draw_ranks(summary["ranks"], out)


def _load_all(config: ExperimentConfig) -> dict[int, tuple[TextTask, ...]]:
    """Load the tasks for every data seed: whatever is wrong with the data is said at once."""
    seeds = {data_seed_of(config, seed): seed for seed in config.seeds}
    return {data_seed: load_tasks(config, seed=seed) for data_seed, seed in seeds.items()}


def _budget(
    config: ExperimentConfig, budget: int, loaded: Loaded, tasks: Sequence[TextTask]
) -> dict[str, Any]:
    """Size the strategies to so many bytes a task."""
    sizes, unmet = sizes_within(budget, config, loaded, tasks)
    shown = {name: asdict(size) for name, size in sizes.items()}
    return {"bytes_per_task": budget, "sizes": shown, "unmet": unmet}


def _same_data(result: RunResult, tasks: Sequence[TextTask]) -> None:
    now = {task.name: task.fingerprint for task in tasks}
    changed = [name for name in now if result.data_fingerprints.get(name) != now[name]]
    if changed:
        raise InputError(
            f"the data of {', '.join(changed)} changed since {result.strategy} with seed "
            f"{result.seed} was run; choose another output folder"
        )


def _in_order(
    config: ExperimentConfig, done: dict[tuple[str, int], RunResult]
) -> Iterable[RunResult]:
    cells = ((strategy, seed) for strategy in config.strategies for seed in config.seeds)
    return (done[cell] for cell in cells if cell in done)


def _sum_up(
    config: ExperimentConfig,
    done: dict[tuple[str, int], RunResult],
    failed: Sequence[Failure],
    out: Path,
    started_by: str,
    budget: Mapping[str, Any] | None,
    *,
    whole: bool = False,
) -> dict[str, Any]:
    """Write both summaries of what is finished; an empty one if nothing is."""
    results = list(_in_order(config, done))
    if not results:
        return {"failed": [{"strategy": f.strategy, "seed": f.seed, "error": f.error}
                           for f in failed]}  # fmt: skip
    summary = summarize(config, results, failed, started_by=started_by, budget=budget)
    write_summary(summary, out, whole=whole)
    return summary


def _reference(names: Sequence[str]) -> str:
    """Choose what the other strategies are compared with."""
    return "grafting" if "grafting" in names else names[0]


def _row(results: Sequence[RunResult], tasks: Sequence[str]) -> dict[str, Any]:
    measures = ("average_accuracy", "backward_transfer", "forward_transfer", "forgetting")
    return {
        **{name: over_seeds(getattr(result, name) for result in results) for name in measures},
        **{
            f"{name}_over_stream": over_seeds(measure(result.R) for result in results)
            for name, measure in _OVER_STREAM.items()
        },
        "ece": over_seeds(mean_ece(result) for result in results),
        "final": {
            task: over_seeds(r.R[-1][r.tasks.index(task)] for r in results) for task in tasks
        },
        "sent_right": over_seeds(result.sent_right for result in results),
        "passes_per_row": over_seeds(result.passes_per_row for result in results),
        "bytes_per_task": over_seeds(mean(result.bytes.values()) for result in results),
        "most_bytes": over_seeds(max(result.bytes.values()) for result in results),
        "seconds": over_seeds(result.total_seconds for result in results),
        "forward_backward": over_seeds(result.total_passes.forward_backward for result in results),
        "forward": over_seeds(result.total_passes.forward for result in results),
        "tuning": results[0].tuning,
    }
