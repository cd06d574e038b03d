"""Strategies side by side: on one stream, on several orders of it, over values of a setting.

With `bytes_per_task`, strategies are made as large as that allows; with `tune`, values of a
strategy's own are chosen before its first cell. The cells share a cache, so independent fine-tuning
costs nothing where grafting ran before. The same comparison into the same folder goes on: finished
cells are read, not computed again, and one that was stopped or killed is taken up where it was;
seeds, strategies and values of a sweep can be added.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from cl_graft.experiments import folders
from cl_graft.experiments.comparison.jobs import Engine, InTurn
from cl_graft.experiments.comparison.parallel_localization import after_the_first
from cl_graft.experiments.comparison.runs import Cells, find_cells
from cl_graft.experiments.comparison.sweep import orders_of, points_of
from cl_graft.experiments.config import ExperimentConfig, make_config
from cl_graft.reporting.summary import summarize, write_summary
from cl_graft.results.comparison import Comparison, SweptValues
from cl_graft.results.run_results import RunResult, command
from cl_graft.runtime.devices import pick_device
from cl_graft.runtime.progress import Progress, Step, silent
from cl_graft.runtime.signals import Stop
from cl_graft.storage import only_writer
from cl_graft.storage.cache_folder import DirectoryCache

__all__ = ["compare"]

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
    """Run all strategies and seeds of a config into a folder, and sum them up there.

    A cell that fails is reported, and the others go on. Where the config asks for several orders or
    sweeps a setting, every one of them is a comparison of its own in a folder below, and measures
    are over seeds, of a strategy with each value; of several orders a seed has the mean.

    Args:
        config: The settings: a config, settings by part, or the path of a YAML file.
        out: Gets ``<strategy>/seed<k>/`` for every cell, ``cache/``, ``tuning/`` where values are
            chosen, ``summary.json``, ``.md``, ``.csv`` and ``.tex``, ``frontier.png``, and
            ``ranks.png`` from three strategies on. Of several comparisons, gets ``order<n>/``,
            ``density=0.001/`` and the like for each, the cache and the summaries over all of them,
            and ``sweep-<setting>.png``.
        progress: Called after every step of every phase.
        started_by: The command to note as the comparison's; None means this process's.
        stop: Asked after every step whether to stop.
        engine: Does the cells; None means one after another, here. An engine localizes the tasks
            of grafting's cells first, each as a job of its own.

    Raises:
        InputError: If the folder holds a comparison with another config, another process writes
            to it, model or data cannot be used, or there are not as many orders; nothing is
            computed then.
        Stopped: If `stop` asked for it.
    """
    config = make_config(config)
    out, points = Path(out), points_of(config)
    started_by, stop = started_by or command(), stop or Stop()
    alone = not points[0].name
    with ExitStack() as locks:
        locks.enter_context(only_writer(out))
        folders.check_out(out, config)
        cells = {
            out / point.name: find_cells(
                point,
                out / point.name,
                cache=out / folders.CACHE,
                started_by=started_by,
                ahead=engine is not None,
            )
            for point in points
        }
        # What cannot be run has left nothing behind that would be in the way of what can.
        jobs = after_the_first([job for one in cells.values() for job in one.jobs])
        if jobs and engine is None:
            pick_device(config.model.device)
        locks.push(partial(_drop_bare, [*cells, out]))
        for place, one in cells.items():
            if not alone:
                locks.enter_context(only_writer(place))
            folders.write_comparison(one.point.config, place, started_by=started_by)
        folders.write_comparison(config, out, started_by=started_by)
        for place, one in cells.items():
            for strategy, seed in one.done:
                folders.finish_if_killed(folders.run_folder(place, strategy, seed))
                progress(Step("reused", 1, 1, "", one.point.shown(strategy), seed))
        cache = DirectoryCache(out / folders.CACHE)
        tasks = {(place, seed): t for place, one in cells.items() for seed, t in one.tasks.items()}
        engine = engine or InTurn(cache, tasks)
        for job, outcome in engine(jobs, progress=progress, stop=stop):
            cells[job.out].take(job, outcome)
            if job.cell and not alone:
                _joined(config, list(cells.values()), out, started_by)
        logger.info("cache: %s answered, %s computed", dict(cache.hits), dict(cache.misses))
        each = [one.sum_up(whole=True) for one in cells.values()]
        return each[0] if alone else _joined(config, list(cells.values()), out, started_by, True)


def _drop_bare(places: Sequence[Path], error: type[BaseException] | None, *_: object) -> None:
    """Drop comparisons in which nothing was reached, but not those that were stopped."""
    if error is None or issubclass(error, Exception):
        for place in places:
            folders.drop_comparison(place)


def _joined(
    config: ExperimentConfig, found: list[Cells], out: Path, started_by: str, whole: bool = False
) -> Comparison:
    """Sum up what is finished of all comparisons."""
    rows: dict[str, list[RunResult]] = {}
    for name in config.comparison.strategies:
        for one in found:
            row = one.point.row(name)
            own = [cell for cell in one.results if cell.strategy == name]
            rows.setdefault(row, []).extend(replace(cell, strategy=row) for cell in own)
    cells = [cell for own in rows.values() for cell in own]
    failed = tuple(
        replace(
            failure,
            strategy=one.point.row(failure.strategy),
            error=one.point.of_order(failure.error),
        )
        for one in found
        for failure in one.failed
    )
    if not cells:
        return Comparison(out, (), failed, None)
    orders = orders_of(config) if config.comparison.orders != 1 else ()
    sweep = {
        one.point.row(name): SweptValues(name, dict(one.point.values))
        for one in found
        for name in one.point.config.comparison.strategies
    }
    summary = summarize(
        cells, failed, config=config.values(), started_by=started_by,
        budget=found[0].budget, orders=orders, sweep=sweep if config.comparison.sweep else None,
    )  # fmt: skip
    if orders:
        rows_by_name = {  # values are tuned for each order by itself
            name: replace(row, tuning={}) for name, row in summary.strategies.items()
        }
        summary = replace(summary, strategies=rows_by_name)
    write_summary(summary, out, whole=whole and not failed)
    return Comparison(out, tuple(cells), failed, summary)
