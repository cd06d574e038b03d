"""Experiments of this project's own: what localization is worth once a region is trained again.

A graft that keeps its tuned values needs a good region. A region that is trained from the base may
need it less, and how much less depends on the learning rate: few coordinates take larger steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

from cl_graft.grafts.region import Region
from cl_graft.settings.schedule_of_task import train_candidates
from cl_graft.training.dense_run import DenseRun
from cl_graft.training.learnable_task import Passes
from cl_graft.training.linear_probe import fit_head
from papers.answers import Answers
from papers.bench import Bench
from papers.measurements import Measurement
from papers.paper_metrics import relative_gain
from papers.retraining import retrain_region

RATES = (0.1, 0.3, 1.0, 3.0)
"""Learning rates of regions: a random one of 0.3 % sees about a twentieth (√0.003) of the norm of
the gradient, so it may want larger ones."""

_COMMON_RATES = (0.1, 0.3)

_ON_DEV = attrgetter("dev")

_HEAD_ROWS = 512


def region_rates(bench: Bench) -> Iterator[Measurement]:
    """Train regions of several localizers again, each over a grid of learning rates.

    ``base_gradient`` sees a head fitted to the base, as it would without a dense run; the others
    see the dense run.
    """
    for label, name in enumerate(bench.names):
        run = bench.dense(label, path=True)
        full = bench.tuned_answers(label, run)
        yield Measurement(name, "fine-tuning", "score", full.score)
        yield Measurement(name, "fine-tuning", "ECE", full.ece)
        regions: dict[str, Region] = {}
        for localizer in (
            str(bench.config.grafting.localizer),
            "movement",
            "path_integral",
            "random",
        ):
            regions[localizer] = bench.region(label, run, localizer=localizer)
        regions["base_gradient"] = bench.region(
            label, _fit_head(bench, label), localizer="base_gradient"
        )
        for localizer, region in regions.items():
            graft = bench.graft_answers(label, bench.cut(run, region), run.head)
            yield Measurement(name, localizer, "score, not re-trained", graft.score)
            yield from _over_rates(bench, label, localizer, region)


def gains_over_the_majority(bench: Bench) -> Iterator[Measurement]:
    """Say what part of fine-tuning's gain over the best constant answer a re-trained graft has.

    Its learning rate is the one that dev chooses, of 0.1 and 0.3. The graft before it is read, too,
    and the score on the training rows, which says how far fine-tuning went.
    """
    for label, name in enumerate(bench.names):
        run = bench.dense(label)
        full = bench.tuned_answers(label, run)
        region = bench.region(label, run)
        graft = bench.graft_answers(label, bench.cut(run, region), run.head)
        again = max(_at_rates(bench, label, region, _COMMON_RATES), key=_ON_DEV).answers
        base = full.best_constant
        yield Measurement(name, "best constant answer", "score", base)
        seen = bench.tuned_answers(label, run, split="train")
        yield Measurement(name, "fine-tuning", "train score", seen.score)
        for method, answers in (
            ("fine-tuning", full),
            ("grafting", graft),
            ("re-trained graft", again),
        ):
            yield Measurement(name, method, "score", answers.score)
            yield Measurement(name, method, "ECE", answers.ece)
        gain = relative_gain(again.score, base=base, full=full.score)
        if gain is not None:
            yield Measurement(name, "re-trained graft", "relative gain", gain)


@dataclass(frozen=True, eq=False)
class _AtRate:
    """Answers of a region trained again at a rate, and its score on dev."""

    rate: float
    answers: Answers
    dev: float


def _at_rates(bench: Bench, label: int, region: Region, rates: Sequence[float]) -> list[_AtRate]:
    """Train a region from the base at every rate; those at which it diverges are passed over."""
    found: list[_AtRate] = []
    for rate, own in train_candidates(
        rates, lambda rate: retrain_region(bench, label, region, lr=rate)
    ):
        dev = bench.graft_answers(label, *own, split="valid").score
        found.append(_AtRate(rate, bench.graft_answers(label, *own), dev))
    return found


def _over_rates(bench: Bench, label: int, method: str, region: Region) -> Iterator[Measurement]:
    """Read a region at every rate, and at the one that dev would choose."""
    name = bench.names[label]
    found = _at_rates(bench, label, region, RATES)
    for one in found:
        yield Measurement(name, method, "score", one.answers.score, one.rate)
        yield Measurement(name, method, "ECE", one.answers.ece, one.rate)
    best = max(found, key=_ON_DEV).answers
    yield Measurement(name, method, "score at the rate that dev chooses", best.score)
    yield Measurement(name, method, "ECE at the rate that dev chooses", best.ece)


def _fit_head(bench: Bench, label: int) -> DenseRun:
    """Return what stands in for a dense run: a head fitted to the base."""
    task = bench.task(label)
    head = fit_head(task, rows=_HEAD_ROWS, seed=bench.seed)
    return DenseRun({}, head, None, Passes())
