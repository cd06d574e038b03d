"""Orders: the same comparison on several orders of the tasks, summed up over all of them.

Every order is a comparison of its own in ``OUT/order<n>/``, and all share a cache: dense runs do
not depend on the order, so grafting and independent fine-tuning make them once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path

from cl_graft.errors import InputError
from cl_graft.experiments import folders
from cl_graft.experiments.cache import DirectoryCache
from cl_graft.experiments.compare import compare, summarize, write_summary
from cl_graft.experiments.config import ExperimentConfig
from cl_graft.experiments.jobs import Engine
from cl_graft.experiments.progress import Progress, reported_as, silent
from cl_graft.experiments.results import Comparison, RunResult, command
from cl_graft.randomness import permutation
from cl_graft.stopping import Stop
from cl_graft.store import only_writer

__all__ = ["compare_orders", "orders_of"]

_MOST = 120
"""Orders that "all" may mean: those of five tasks."""


def orders_of(config: ExperimentConfig) -> list[list[str]]:
    """Return the orders of a config's tasks, the given one first; others are drawn, all different.

    Raises:
        InputError: If there are not as many, or too many for all of them.
    """
    tasks = config.tasks
    there_are = math.factorial(len(tasks))
    wanted = there_are if config.orders == "all" else config.orders
    if config.orders == "all" and there_are > _MOST:
        raise InputError(
            f"{len(tasks)} tasks have {there_are:,} orders: say how many of them, such as orders: 6"
        )
    if wanted > there_are:
        raise InputError(f"{len(tasks)} tasks have {there_are:,} orders, got orders: {wanted}")
    if wanted == there_are:
        return [list(order) for order in permutations(tasks)]
    chosen = [list(tasks)]
    draw = 0
    while len(chosen) < wanted:
        places = permutation(len(tasks), 0, "order", draw).tolist()
        order = [tasks[place] for place in places]
        chosen += [order] if order not in chosen else []
        draw += 1
    return chosen


def compare_orders(
    config: ExperimentConfig,
    *,
    out: Path | str,
    progress: Progress = silent,
    started_by: str | None = None,
    stop: Stop | None = None,
    engine: Engine | None = None,
) -> Comparison:
    """Compare on every order that a config asks for; on one, as `compare` does.

    Measures of a strategy are over all orders and seeds, and pairs and ranks are of runs with the
    same order and seed. What was tuned is in the summary of each order.

    Args:
        config: The settings.
        out: Gets ``order<n>/`` for each, ``cache/`` and the summaries over all of them.
        progress: As in `compare`.
        started_by: As in `compare`.
        stop: As in `compare`.
        engine: As in `compare`; it does the cells of one order after those of another.

    Raises:
        InputError: As in `compare`, or if there are not as many orders.
        Stopped: If `stop` asked for it.
    """
    if config.orders == 1:
        return compare(
            config, out=out, progress=progress, started_by=started_by, stop=stop, engine=engine
        )
    out, orders, started_by = Path(out), orders_of(config), started_by or command()
    with only_writer(out):
        folders.check_out(out, config)
        cells_of = {"strategies": config.strategies, "seeds": config.seeds}
        folders.write_config(config, out, **cells_of, command=started_by)
        cache = DirectoryCache(out / folders.CACHE)
        found = [
            compare(
                config.model_copy(update={"tasks": tasks, "orders": 1}),
                out=out / f"order{place}",
                progress=reported_as(progress, f"order {place} {{}}".format),
                started_by=started_by,
                stop=stop,
                cache=cache,
                engine=engine,
            )
            for place, tasks in enumerate(orders)
        ]
        return _joined(config, found, orders, out, started_by)


def _joined(
    config: ExperimentConfig,
    found: Sequence[Comparison],
    orders: list[list[str]],
    out: Path,
    started_by: str,
) -> Comparison:
    """Sum up the comparisons of all orders."""
    cells: list[RunResult] = [
        cell
        for name in config.strategies
        for one in found
        for cell in one.cells
        if cell.strategy == name
    ]
    failed = [
        replace(failure, error=f"order {place}: {failure.error}")
        for place, one in enumerate(found)
        for failure in one.failed
    ]
    if not cells:
        return Comparison(out, (), tuple(failed), {"failed": [vars(f) for f in failed]})
    budget = found[0].summary.get("budget")
    summary = summarize(config, cells, failed, started_by=started_by, budget=budget)
    for row in summary["strategies"].values():
        row["tuning"] = {}
    summary["orders"] = orders
    write_summary(summary, out, whole=not failed)
    return Comparison(out, tuple(cells), tuple(failed), summary)
