"""Experiments of the SAM paper: which parameters to tune, and how steady the outcome is.

Fu et al., 2023, https://arxiv.org/abs/2211.15583.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.stats import rankdata

from cl_graft.grafts.graft import copy_, gather, snapshot, write_
from cl_graft.grafts.model_state import replace_parameters
from cl_graft.grafts.region import Region
from cl_graft.grafts.selection import top_k
from cl_graft.localization import find_localizer
from cl_graft.localization.grafting_settings import region_rate
from cl_graft.metrics import task_loss
from cl_graft.metrics.statistics import holm, mean_interval, paired_t_test
from cl_graft.models.graftable import weight_scale
from cl_graft.runtime.seeding import derive
from cl_graft.training.dense_run import DenseRun
from cl_graft.training.learnable_task import Passes
from papers.answers import Answers
from papers.bench import Bench
from papers.graft_variants import mixed_evaluation
from papers.measurements import Measurement, Summary
from papers.paper_metrics import without_a_share
from papers.peers import LORA_EVERYWHERE, PEERS, Peer, choose_size, measure_share, train_peer
from papers.retraining import retrain_region
from papers.trajectory import walk_dense_run

_FULL = "FullTuning"

METHODS: Mapping[str, str] = {
    "Random": "random",
    "MagPruning": "magnitude",
    "DiffPruning": "diff_pruning_sam",
    "ChildPruning": "child_pruning",
    "SAM": "sam",
}
"""Sparse methods of Table 1, as localizers whose region is trained from the base."""

INSERTED: Mapping[str, tuple[Peer, float]] = {
    "Adapter": (PEERS["Houlsby"], 0.0072),
    "LoRA": (LORA_EVERYWHERE, 0.0091),
}
"""Methods of Table 1 that put parts into the model: the peer, and the share tuned in Table 4."""


_OTHERS = ("MixOut", *METHODS, "BitFit", *INSERTED)

MIXED_LATE = "score, mixed in evaluation"
"""MixOut as the paper's repository has it: the model is tuned without, and mixed when it answers.
A measure of its own, so that no claim on the paper's methods counts it."""

_MIXED = 0.9
"""Of the weights: Lee et al. (2020, https://arxiv.org/abs/1909.11299) try 0.7, 0.8 and 0.9."""

_BETWEEN_PROJECTIONS = 600


def methods(bench: Bench) -> Iterator[Measurement]:
    """Score and time every way to choose what trains (Tables 1 and 3).

    What looks at a dense run takes the time of one, too.
    """
    for label, name in enumerate(bench.names):
        for method, (score, seconds) in _measure(bench, label, anew=True).items():
            yield Measurement(name, method, "score", score)
            yield Measurement(name, method, "seconds", seconds)
        yield Measurement(name, "MixOut", MIXED_LATE, _mixed_late(bench, label).score)


def perturbed_data(bench: Bench) -> Iterator[Measurement]:
    """Score them on nine tenths of the training rows, drawn anew in every cell (Tables 2, 6)."""
    for label, name in enumerate(bench.names):
        rows = len(bench.task(label).train)
        kept = without_a_share(rows, share=0.1, seed=derive(bench.cell, name))
        with bench.fewer_rows(label, kept):
            for method, (score, _) in _measure(bench, label, anew=False).items():
                yield Measurement(name, method, "score", score)


def projections(bench: Bench) -> Iterator[Measurement]:
    """Read the training loss before and after projections onto the most moved weights (Fig. 3).

    They come every 600 steps of a dense run, as in the paper, and five times in a shorter one, as
    DiffPruning chooses its coordinates again and again: what is not among the most moved ones goes
    back to the base. The loss at the start is read, too, to which the paper sees it go back.
    """
    for label in range(len(bench.names)):
        yield from _project(bench, label)


def sparsities(bench: Bench) -> Iterator[Measurement]:
    """Sweep the density of SAM's region (Fig. 5)."""
    shares = (2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 1e-1, 2e-1)
    for label, name in enumerate(bench.names):
        run = _at_base(bench, label)
        k = bench.size(shares[-1])
        ranking = bench.ranking(label, "sam", k=k, dense=run, depth=k)
        for share in shares:
            region = bench.first(ranking, share)
            values, head = retrain_region(bench, label, region, **_plan(bench, label))
            for split, measure in (("test", "test score"), ("train", "train score")):
                answers = bench.graft_answers(label, values, head, split=split)
                yield Measurement(name, "SAM", measure, answers.score, share)


def ratios(bench: Bench) -> Iterator[Measurement]:
    """Say which share of the graftable parameters each method tunes (Table 4)."""
    total = bench.layout.total
    yield Measurement("any", _FULL, "share tuned", 1.0)
    yield Measurement("any", "MixOut", "share tuned", 1.0)
    yield Measurement("any", "BitFit", "share tuned", bench.biases(0).density)
    for method in METHODS:
        yield Measurement("any", method, "share tuned", bench.size(bench.density) / total)
    for method, (peer, share) in INSERTED.items():
        size = choose_size(bench, peer, share=share)
        yield Measurement("any", method, "share tuned", measure_share(bench, peer, size))


def ranks(cells: Sequence[Sequence[Measurement]], rows: Sequence[Summary]) -> Iterator[Measurement]:
    """Rank methods by deviation and by mean, and correlate the ranks (Fig. 4); 1 is the best.

    Methods are ranked on each task, so chance is that of orders of a task's methods.
    """
    del cells
    tasks, spread, means = [], [], []
    for task in dict.fromkeys(row.task for row in rows):
        own = [row for row in rows if row.task == task and row.measure == "score"]
        tasks += [task] * len(own)
        spread += [1.0 + sum(o.deviation < row.deviation for o in own) for row in own]
        means += [1.0 + sum(o.mean > row.mean for o in own) for row in own]
    for stable, good in sorted(zip(spread, means, strict=True)):
        yield Measurement("all", "any method", "performance rank", good, stable)
    if len(means) >= 3 and len(set(spread)) > 1 and len(set(means)) > 1:
        rho, p = _correlate_ranks(spread, means, tasks)
        yield Measurement("all", "stability rank and performance rank", "Spearman's rho", rho)
        yield Measurement("all", "stability rank and performance rank", "p", p)


def _correlate_ranks(
    first: Sequence[float], second: Sequence[float], blocks: Sequence[str]
) -> tuple[float, float]:
    """Return Spearman's ρ and its two-sided p, where only orders within a block are equally likely.

    p is the share of 9,999 random orders of one side, and of the order given, with a correlation
    as large.
    """
    by_block = sorted(
        zip(first, second, map(blocks.index, blocks), strict=True), key=lambda r: r[2]
    )
    x, y, block = (np.array(values) for values in zip(*by_block, strict=True))
    x, y = (own - own.mean() for own in (rankdata(x), rankdata(y)))
    # Random keys below 1 beside a block's number: sorting shuffles each block within its places.
    keys = np.random.default_rng(0).random((9_999, len(x))) + block
    whole = abs(float(x @ y))
    as_large = int((np.abs(x[np.argsort(keys, axis=1)] @ y) >= whole * (1 - 1e-12)).sum())
    return float(x @ y) / math.sqrt(float(x @ x) * float(y @ y)), (1 + as_large) / 10_000


def differences(
    cells: Sequence[Sequence[Measurement]], rows: Sequence[Summary]
) -> Iterator[Measurement]:
    """Test SAM against every other method, pair by pair of cells (Tables 5 and 6).

    p is that of each pair alone, as in the paper; beside it stands p corrected after Holm for all
    pairs of the table, as one in twenty of so many tests is below 0.05 by chance. Fewer than three
    cells, and methods that differ by the same in all, have none.
    """
    scores: dict[tuple[str, str], list[float]] = {}
    for measurements in cells:
        for measurement in measurements:
            if measurement.measure == "score":
                scores.setdefault((measurement.task, measurement.method), []).append(
                    measurement.value
                )
    del rows
    found: dict[tuple[str, str], tuple[float, float | None, float | None]] = {}
    for (task, method), other in scores.items():
        own = scores.get((task, "SAM"), [])
        if method != "SAM" and len(own) == len(other):
            gap, _ = mean_interval([a - b for a, b in zip(own, other, strict=True)])
            found[task, f"SAM against {method}"] = gap, *paired_t_test(own, other)
    corrected = holm([1.0 if p is None else p for _, _, p in found.values()])
    for ((task, pair), (gap, t, p)), p_holm in zip(found.items(), corrected, strict=True):
        if t is not None and p is not None:
            yield Measurement(task, pair, "t", t)
            yield Measurement(task, pair, "p", p)
            yield Measurement(task, pair, "p corrected", p_holm)
        yield Measurement(task, pair, "mean difference", gap)


def _measure(bench: Bench, label: int, *, anew: bool) -> dict[str, tuple[float, float]]:
    """Return score and seconds of every method, full tuning first.

    Seconds say something only where everything is made `anew`, whatever the cache holds. They are
    the processor's, if that computes: what else runs there counts less.
    """
    clock = time.process_time if bench.device.type == "cpu" else time.perf_counter
    sizes = {m: choose_size(bench, peer, share=share) for m, (peer, share) in INSERTED.items()}
    found: dict[str, tuple[float, float]] = {}
    for method in ("MixOut", _FULL, *METHODS, "BitFit", *INSERTED):
        started = clock()
        score = _one(bench, label, method, size=sizes.get(method), anew=anew).score
        seconds = clock() - started
        if method in METHODS and find_localizer(METHODS[method]).needs_dense_run:
            seconds += found[_FULL][1]
        found[method] = score, seconds
    return {method: found[method] for method in (_FULL, *_OTHERS)}


def _project(bench: Bench, label: int) -> list[Measurement]:
    task, schedule, name = bench.task(label), bench.schedule(label), bench.names[label]
    base, k = snapshot(task.parameters), bench.size(bench.density)
    read: list[Measurement] = []

    def loss() -> float:
        answers = bench.answers(label, split="train")
        return float(task_loss(answers.logits, answers.targets))

    def project(step: int) -> None:
        before = loss()
        moved = {name: p.detach() - base[name] for name, p in task.parameters.items()}
        region = top_k({name: difference.abs() for name, difference in moved.items()}, k)
        graft = gather(task.parameters, region)
        copy_(task.parameters, base)
        write_(task.model, graft)
        read.append(Measurement(name, "before a projection", "training loss", before, float(step)))
        read.append(Measurement(name, "after it", "training loss", loss(), float(step)))

    read.append(Measurement(name, "at the start", "training loss", loss(), 0.0))
    marks = list(range(_BETWEEN_PROJECTIONS, schedule.steps, _BETWEEN_PROJECTIONS))
    if len(marks) < 5:
        marks = [max(1, schedule.steps * number // 6) for number in range(1, 6)]
    walk_dense_run(task, replace(schedule, evaluations=0), seed=bench.seed, at=marks, visit=project)
    return read


def _one(bench: Bench, label: int, method: str, *, size: int | None, anew: bool) -> Answers:
    if method == _FULL:
        return bench.tuned_answers(label, bench.dense(label, anew=anew))
    if method == "MixOut":
        return bench.tuned_answers(label, bench.dense(label, anew=anew, mixout=_MIXED))
    if size is not None:
        peer, _ = INSERTED[method]
        with train_peer(bench, label, peer, size=size, plan=_plan(bench, label), anew=anew) as own:
            return own.answers(label)
    region = bench.biases(label) if method == "BitFit" else _choose(bench, label, method, anew=anew)
    found = retrain_region(bench, label, region, anew=anew, **_plan(bench, label))
    return bench.graft_answers(label, *found)


def _mixed_late(bench: Bench, label: int) -> Answers:
    """Answer with the tuned model, whose weights fall back to the base by chance."""
    task, run = bench.task(label), bench.dense(label)
    mixed = mixed_evaluation(task.parameters, snapshot(task.parameters), p=_MIXED, seed=bench.seed)
    with (
        replace_parameters(task.parameters, run.tuned),
        replace_parameters(task.head, run.head),
        mixed,
    ):
        return bench.answers(label)


def _choose(bench: Bench, label: int, method: str, *, anew: bool) -> Region:
    row = find_localizer(METHODS[method])
    run = bench.dense(label) if row.needs_dense_run else _at_base(bench, label)
    return bench.region(label, run, localizer=row.name, anew=anew)


def _plan(bench: Bench, label: int) -> dict[str, Any]:
    """Return how all that trains few parameters is trained: one way, or methods do not compare."""
    size, scale = bench.size(bench.density), weight_scale(bench.model)
    lr = bench.config.grafting.lr or region_rate("adamw", size, scale=scale)
    return {"optimizer": "adamw", "lr": lr, "weight_decay": bench.schedule(label).weight_decay}


def _at_base(bench: Bench, label: int) -> DenseRun:
    """Return what stands in for a dense run where none is needed: the head as it is made."""
    return DenseRun({}, snapshot(bench.task(label).head), None, Passes())
