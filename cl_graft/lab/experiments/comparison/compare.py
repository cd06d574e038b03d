"""The comparison of strategies on one stream, on several orders of it, and over swept settings.

The runs share a cache, so independent fine-tuning costs nothing where grafting ran before. The same
comparison into the same folder resumes. Seeds, strategies and values of a sweep can be added.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from cl_graft.lab.experiments import folders
from cl_graft.lab.experiments.comparison.jobs import (
    ComparisonRuns,
    Engine,
    SequentialEngine,
    find_runs_to_do,
    refuse_another_base,
)
from cl_graft.lab.experiments.comparison.sweep import draw_orders, expand_sweep
from cl_graft.lab.experiments.run_setup import keep_able_strategies
from cl_graft.lab.reporting.summary_files import write_summary
from cl_graft.lab.results.comparison import Comparison, SweptValues, summarize
from cl_graft.lab.results.run_results import RunResult, command
from cl_graft.runtime.devices import pick_device
from cl_graft.runtime.progress import Progress, Step, silent
from cl_graft.runtime.signals import Stop
from cl_graft.settings import ExperimentConfig, make_config
from cl_graft.storage import only_writer
from cl_graft.storage.cache_folder import DirectoryCache

logger = logging.getLogger(__name__)


def compare(
    config: ExperimentConfig | Mapping[str, Any] | Path | str,
    *,
    out: Path | str,
    progress: Progress = silent,
    started_by: str | None = None,
    stop: Stop | None = None,
    engine: Engine | None = None,
) -> Comparison:
    """Run all strategies and seeds of a config into a folder, and summarize them there.

    A run that fails is reported, and the others go on. Where the config asks for several orders or
    sweeps a setting, every one of them is a comparison of its own in a folder below, and measures
    are over seeds, of a strategy with each value; of several orders a seed has the mean.

    Args:
        config: The settings: a config, settings by part, or the path of a YAML file.
        out: Folder, which gets ``<strategy>/seed<k>/`` for every run, ``cache/``, ``tuning/`` where
            values are chosen, ``summary.json``, ``.md``, ``.csv`` and ``.tex``. With several
            comparisons it gets ``order<n>/``, ``density=0.001/`` and the like for each, the cache,
            and the summaries over all of them.
        progress: Called after every step of every phase.
        started_by: Command that started it, for the results; None means this process's.
        stop: Asked after every step whether to stop.
        engine: Engine that does the jobs; None does them one after another in this process.

    Raises:
        InputError: If the folder holds a comparison with another config or with runs on another
            base or other data, another process writes to it, model or data cannot be used, or
            there are not as many orders; nothing is computed then.
        Stopped: If `stop` asked for it.
    """
    config = keep_able_strategies(make_config(config))
    out, parts = Path(out), expand_sweep(config)
    started_by, stop = started_by or command(), stop or Stop()
    several = bool(parts[0].name)
    with ExitStack() as locks:
        locks.enter_context(only_writer(out))
        folders.check_out(out, config)
        cache = out / folders.CACHE
        comparisons = {
            out / part.name: find_runs_to_do(
                part, out / part.name, cache=cache, started_by=started_by
            )
            for part in parts
        }
        every = list(comparisons.values())
        refuse_another_base(every)
        # No folder was written so far: a comparison that cannot run leaves nothing behind.
        jobs = [job for runs in every for job in runs.jobs]
        if jobs and engine is None:
            pick_device(config.model.device)
        locks.push(partial(_drop_empty, [*comparisons, out]))
        for folder, runs in comparisons.items():
            if several:
                locks.enter_context(only_writer(folder))
            folders.write_config(folder, {"command": started_by, **runs.part.config.values()})
        folders.write_config(out, {"command": started_by, **config.values()})
        for folder, runs in comparisons.items():
            for strategy, seed in runs.done:
                folders.finish_killed_run(folders.run_folder(folder, strategy, seed))
                progress(Step("reused", 1, 1, "", runs.part.name_strategy(strategy), seed))
        kept = DirectoryCache(cache)
        tasks = {(runs.out, seed): own for runs in every for seed, own in runs.tasks.items()}
        engine = engine or SequentialEngine(kept, tasks)
        for job, outcome in engine(jobs, progress=progress, stop=stop):
            comparisons[job.out].take(job, outcome)
            if job.seed is not None and several:
                _summarize_all(config, every, out, started_by)
        logger.info("cache: %s answered, %s computed", dict(kept.hits), dict(kept.misses))
        sums = [runs.sum_up() for runs in every]
        return _summarize_all(config, every, out, started_by) if several else sums[0]


def _drop_empty(outs: Sequence[Path], error: type[BaseException] | None, *_: object) -> None:
    """Delete the configs of comparisons without any result, unless they were stopped."""
    if error is None or issubclass(error, Exception):
        for out in outs:
            folders.drop_comparison(out)


def _summarize_all(
    config: ExperimentConfig, comparisons: Sequence[ComparisonRuns], out: Path, started_by: str
) -> Comparison:
    """Summarize the finished runs of all comparisons, a row for each strategy and swept value."""
    rows: dict[str, list[RunResult]] = {}
    sweep: dict[str, SweptValues] = {}
    for name in config.comparison.strategies:
        for runs in comparisons:
            row = runs.part.name_row(name)
            done = [run for run in runs.results if run.strategy == name]
            rows.setdefault(row, []).extend(replace(run, strategy=row) for run in done)
            if name in runs.part.config.comparison.strategies:
                sweep[row] = SweptValues(name, dict(runs.part.values))
    finished = [run for done in rows.values() for run in done]
    failed = tuple(
        replace(
            failure,
            strategy=runs.part.name_row(failure.strategy),
            error=runs.part.name_order(failure.error),
        )
        for runs in comparisons
        for failure in runs.failed
    )
    if not finished:
        return Comparison(out, (), failed, None)
    orders = draw_orders(config) if config.comparison.orders != 1 else ()
    summary = summarize(
        finished, failed, config=config.values(), started_by=started_by, orders=orders,
        budget=comparisons[0].budget, sweep=sweep if config.comparison.sweep else None,
    )  # fmt: skip
    if orders:  # values are tuned for each order by itself
        untuned = {name: replace(row, tuning={}) for name, row in summary.strategies.items()}
        summary = replace(summary, strategies=untuned)
    write_summary(summary, out)
    return Comparison(out, tuple(finished), failed, summary)
