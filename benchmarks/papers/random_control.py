"""The test that a localizer has to pass: against a random region of its size, at its best rate.

Every region is trained from the base beside a fresh head, at each rate of one grid; the head has a
rate of its own, so that it does not bound that of the region. Dev chooses the rate, once for every
region, and the test rows are read at that rate alone. What a localizer costs beyond that is counted
in rows before its region trains.

What a region can learn at first is what of the gradient it holds, which is known without training.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter

from cl_graft.grafts.graft import gather, snapshot
from cl_graft.grafts.region import Parameters, Region
from cl_graft.localization import find_localizer
from cl_graft.localization.inputs_of_task import RowCounter
from cl_graft.localization.localizer_inputs import add_gradient_
from cl_graft.metrics.statistics import holm, mean_interval, paired_t_test
from cl_graft.settings.schedule_of_task import train_candidates
from cl_graft.training.dense_run import DenseRun
from cl_graft.training.learnable_task import Passes
from papers.answers import Answers
from papers.bench import Bench
from papers.measurements import Measurement, Summary
from papers.retraining import retrain_region

LOCALIZERS = (
    "random",
    "movement",
    "learned_mask",
    "base_gradient",
)
"""What is compared, the control first."""

RATES = (0.3, 1.0, 3.0)
"""Learning rates of regions, of which dev chooses one."""

_CONTROL = LOCALIZERS[0]
_SCORE = "score at the rate that dev chooses"


def against_random(bench: Bench) -> Iterator[Measurement]:
    """Train regions of several localizers and sizes, each at the rate that dev chooses for it."""
    for label, name in enumerate(bench.names):
        run = bench.dense(label)
        yield Measurement(name, "fine-tuning", "score", bench.tuned_answers(label, run).score)
        for localizer in LOCALIZERS:
            for density in bench.config.grafting.budgets:
                region, rows = _find(bench, label, localizer, density, run)
                yield Measurement(name, localizer, "rows before training", rows, density)
                yield from _train_at_best_rate(bench, label, localizer, density, region)


def gradient_shares(bench: Bench) -> Iterator[Measurement]:
    """Say what share of the base's squared gradient regions hold, and of the dense run's movement.

    The gradient is summed over the batches that follow those of the localizers. Of few training
    rows, both see some of the same. A random region holds about its density.
    """
    densities = bench.config.grafting.budgets
    for label, name in enumerate(bench.names):
        run, start = bench.dense(label), _at_base(bench, label)
        held = {
            "share of the squared gradient": _later_gradient(bench, label, start),
            "share of the squared movement": {
                n: run.tuned[n].float() - p.detach().float()
                for n, p in bench.task(label).parameters.items()
            },
        }
        whole = {measure: _energy(values) for measure, values in held.items()}
        for localizer in (*LOCALIZERS, "magnitude"):
            dense = run if find_localizer(localizer).needs_dense_run else start
            depth = bench.size(max(densities))
            ranking = bench.ranking(label, localizer, dense=dense, depth=depth)
            for density in densities:
                region = bench.first(ranking, density)
                for measure, values in held.items():
                    share = _energy({"": gather(values, region).values}) / whole[measure]
                    yield Measurement(name, localizer, measure, share, density)


def differences_from_random(
    cells: Sequence[Sequence[Measurement]], rows: Sequence[Summary], *, measure: str = _SCORE
) -> Iterator[Measurement]:
    """Test every localizer against the random regions of the same cells, task by task and over all.

    Over all tasks a cell counts once, by its mean. p is corrected after Holm for all localizers and
    sizes of a task.
    """
    del rows
    scores: dict[tuple[str, float | None, str], list[float]] = {}
    for measurements in cells:
        own = [m for m in measurements if m.measure == measure and m.x is not None]
        for m in own:
            scores.setdefault((m.task, m.x, m.method), []).append(m.value)
        for x, method in dict.fromkeys((m.x, m.method) for m in own):
            found = [m.value for m in own if (m.x, m.method) == (x, method)]
            scores.setdefault(("all", x, method), []).append(sum(found) / len(found))
    for task in dict.fromkeys(task for task, _, _ in scores):
        tested: list[tuple[str, float | None, float, float | None]] = []
        for (own_task, x, method), values in scores.items():
            control = scores[task, x, _CONTROL]
            if own_task == task and method != _CONTROL and len(values) == len(control):
                gap, _ = mean_interval([a - b for a, b in zip(values, control, strict=True)])
                tested.append((method, x, gap, paired_t_test(values, control)[1]))
        corrected = holm([1.0 if p is None else p for *_, p in tested])
        for (method, x, gap, p), p_holm in zip(tested, corrected, strict=True):
            yield Measurement(task, method, "above random", gap, x)
            if p is not None:
                yield Measurement(task, method, "p", p, x)
                yield Measurement(task, method, "p corrected", p_holm, x)


def _find(
    bench: Bench, label: int, localizer: str, density: float, run: DenseRun
) -> tuple[Region, int]:
    """Return a region of a localizer, and the rows forward and backward that found it."""
    row, counter, k = find_localizer(localizer), RowCounter(), bench.size(density)
    if not row.needs_dense_run:
        run = _at_base(bench, label)
    ranking = bench.ranking(label, localizer, dense=run, k=k, depth=k, counter=counter)
    return ranking.top(k), (run.passes + counter.passes).forward_backward


def _at_base(bench: Bench, label: int) -> DenseRun:
    """Return what stands in for a dense run where none is needed: the head as it is made."""
    return DenseRun({}, snapshot(bench.task(label).head), None, Passes())


def _later_gradient(bench: Bench, label: int, start: DenseRun) -> Parameters:
    """Sum the gradient at the base over as many batches as localizers see, after theirs."""
    steps = bench.config.grafting.mask_steps
    with bench.open_inputs(label, "base_gradient", start, bench.task(label)) as inputs:
        total = inputs.zeros()
        for step in range(steps, 2 * steps):
            add_gradient_(inputs, step, into=lambda name, part: total[name].add_(part))
    return total


def _energy(values: Parameters) -> float:
    """Return the sum of squares."""
    return sum(float(tensor.double().square().sum()) for tensor in values.values())


def _train_at_best_rate(
    bench: Bench, label: int, method: str, density: float, region: Region
) -> Iterator[Measurement]:
    """Train a region at every rate, and read it at the one that dev chooses."""
    name = bench.names[label]
    trained = train_candidates(RATES, lambda rate: retrain_region(bench, label, region, lr=rate))
    devs = [
        (bench.graft_answers(label, *own, split="valid").score, rate, own) for rate, own in trained
    ]
    dev, rate, own = max(devs, key=itemgetter(0))
    answers: Answers = bench.graft_answers(label, *own)
    yield Measurement(name, method, _SCORE, answers.score, density)
    yield Measurement(name, method, "score on dev", dev, density)
    yield Measurement(name, method, "rate that dev chooses", rate, density)
