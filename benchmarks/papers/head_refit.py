"""Grafts without re-training, each under a head that is fitted to it.

The grafting paper reads a graft through the label words of its prompt, which no task changes. A
head of a dense run fits all of the run's weights and not a graft of them, so what such a graft
scores is lost by the head as much as by the region. Here every body gets a head of its own, fitted
by L-BFGS to the same rows: the base (the linear probe), the graft and the dense run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from torch import Tensor

from cl_graft.grafts.graft import Graft
from cl_graft.grafts.model_state import replace_parameters
from cl_graft.grafts.region import Region
from cl_graft.training.dense_run import DenseRun
from cl_graft.training.linear_probe import fit_head
from papers.answers import Answers
from papers.bench import Bench
from papers.measurements import Measurement
from papers.paper_metrics import relative_gain

_ROWS = 512
_DENSITIES = (1e-3, 3e-3, 1e-2, 3e-2)
_LEAST_GAIN = 0.02
"""Smallest gain of fine-tuning over the linear probe of which a share is read."""


def refitted_grafts(bench: Bench) -> Iterator[Measurement]:
    """Compare learned, most moved and random regions under heads that fit them.

    The share of the gain is that of the dense run over the linear probe, all with fitted heads; its
    mean over the logarithms of the densities is the area under its curve, as in MIB.
    """
    densities = sorted({*_DENSITIES, bench.density})
    for label, name in enumerate(bench.names):
        run = bench.dense(label)
        yield Measurement(name, "fine-tuning", "score", bench.tuned_answers(label, run).score)
        nothing = bench.cut(run, Region.empty(bench.layout))
        probe = _with_fitted_head(bench, label, nothing).score
        yield Measurement(name, "linear probe", "score, head fitted", probe)
        tuned = _tuned_with_fitted_head(bench, label, run).score
        yield Measurement(name, "fine-tuning", "score, head fitted", tuned)
        for localizer in (str(bench.config.grafting.localizer), "movement", "random"):
            depth = bench.size(densities[-1])
            ranking = bench.ranking(label, localizer, dense=run, depth=depth)
            shares: list[float] = []
            for density in densities:
                graft = bench.cut(run, bench.first(ranking, density))
                plain = bench.graft_answers(label, graft, run.head).score
                fitted = _with_fitted_head(bench, label, graft).score
                yield Measurement(name, localizer, "score", plain, density)
                yield Measurement(name, localizer, "score, head fitted", fitted, density)
                share = relative_gain(fitted, base=probe, full=tuned)
                if share is not None and tuned - probe >= _LEAST_GAIN:
                    yield Measurement(name, localizer, "share of the gain", share, density)
                    shares.append(share)
            if shares:
                area = _mean_over_logarithms(densities, shares)
                yield Measurement(name, localizer, "share of the gain over densities", area)


def _with_fitted_head(bench: Bench, label: int, graft: Graft) -> Answers:
    """Answer with a graft on the base, and a head that is fitted to it."""
    task = bench.task(label)
    with bench.apply_graft(label, graft, task.head):
        return _with_head(bench, label, fit_head(task, rows=_ROWS, seed=bench.seed))


def _tuned_with_fitted_head(bench: Bench, label: int, run: DenseRun) -> Answers:
    """Answer with the densely fine-tuned model, and a head that is fitted to it."""
    task = bench.task(label)
    with replace_parameters(task.parameters, run.tuned):
        return _with_head(bench, label, fit_head(task, rows=_ROWS, seed=bench.seed))


def _with_head(bench: Bench, label: int, head: dict[str, Tensor]) -> Answers:
    with replace_parameters(bench.task(label).head, head):
        return bench.answers(label)


def _mean_over_logarithms(densities: Sequence[float], values: Sequence[float]) -> float:
    """Return the area under a curve over the logarithm of its axis, divided by the axis's width."""
    places = [math.log(density) for density in densities]
    pieces = [
        (right - left) * (first + second) / 2
        for left, right, first, second in zip(places, places[1:], values, values[1:], strict=False)
    ]
    return math.fsum(pieces) / (places[-1] - places[0])
