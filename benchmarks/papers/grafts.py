"""Experiments on single tasks: grafts, re-trained grafts and their regions.

Panigrahi et al., 2023, https://arxiv.org/abs/2302.06600.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any

from cl_graft.grafts.model_state import replace_parameters
from cl_graft.grafts.region import Region, anatomy
from cl_graft.lab.experiments.localized_task import DENSITIES
from cl_graft.metrics import agreement, task_loss
from cl_graft.settings.schedule_of_task import train_candidates
from papers.answers import Answers
from papers.bench import Bench
from papers.bound import generalization_bound, variance_bound
from papers.graft_variants import lottery_ticket, sweep_densities
from papers.measurements import Measurement
from papers.paper_metrics import top_probability_histogram
from papers.retraining import bitfit, retrain_region

_ADAMW_RATES = (2e-5, 1e-4, 5e-4)

_FISH_ROWS = 1024
"""Of which FISH takes gradients, one by one (Sung et al., 2021)."""


def graft_and_peers(bench: Bench) -> Iterator[Measurement]:
    """Compare fine-tuning, the graft, its re-training and BitFit (Table 1)."""
    for label, name in enumerate(bench.names):
        run = bench.dense(label)
        region = bench.region(label, run)
        yield from _read(name, "fine-tuning", bench.tuned_answers(label, run))
        yield from _read(
            name, "grafting", bench.graft_answers(label, bench.cut(run, region), run.head)
        )
        yield from _read(
            name,
            "re-trained graft",
            bench.graft_answers(label, *retrain_region(bench, label, region)),
        )
        yield from _read(name, "BitFit", bench.graft_answers(label, *bitfit(bench, label)))


def calibrated_grafts(bench: Bench) -> Iterator[Measurement]:
    """Compare fine-tuning and the graft in score, calibration and answers (Tables 2 and 9)."""
    for label, name in enumerate(bench.names):
        run = bench.dense(label)
        region = bench.region(label, run)
        tuned = bench.tuned_answers(label, run)
        graft = bench.graft_answers(label, bench.cut(run, region), run.head)
        yield from _read(name, "fine-tuning", tuned)
        yield from _read(name, "grafting", graft)
        yield Measurement(name, "grafting", "agreement", agreement(graft.logits, tuned.logits))


def memorize(bench: Bench) -> Iterator[Measurement]:
    """The same, and how well fine-tuning knows its training rows."""
    yield from calibrated_grafts(bench)
    for label, name in enumerate(bench.names):
        seen = bench.tuned_answers(label, bench.dense(label), split="train")
        loss = float(task_loss(seen.logits, seen.targets))
        yield Measurement(name, "fine-tuning", "training loss", loss)
        yield Measurement(name, "fine-tuning", "train score", seen.score)


def densities(bench: Bench) -> Iterator[Measurement]:
    """Compare grafts of a quarter, half and all of the density with fine-tuning (Table 5)."""
    for label, name in enumerate(bench.names):
        run = bench.dense(label)
        yield from _read(name, "fine-tuning", bench.tuned_answers(label, run))
        depth = bench.size(bench.density)
        ranking = bench.ranking(label, str(bench.config.grafting.localizer), dense=run, depth=depth)
        for share in (bench.density / 4, bench.density / 2, bench.density):
            graft = bench.cut(run, bench.first(ranking, share))
            answers = bench.graft_answers(label, graft, run.head)
            yield from _read(name, "grafting", answers, x=share)


def regions_by_density(bench: Bench) -> Iterator[Measurement]:
    """Sweep the density of learned, most moved and random regions (Figs. 2 and 3)."""
    for label in range(len(bench.names)):
        for localizer in (str(bench.config.grafting.localizer), "movement", "random"):
            yield from _swept(bench, label, localizer, method=localizer)
        yield _score_dense_run(bench, label, "fine-tuning")


def bias_grafts(bench: Bench) -> Iterator[Measurement]:
    """Sweep grafts of biases alone against grafts of anything (Fig. 4a)."""
    for label in range(len(bench.names)):
        others = Region.full(bench.layout) - bench.biases(label)
        yield from _swept(
            bench, label, str(bench.config.grafting.localizer), method="any parameter"
        )
        yield from _swept(
            bench, label, str(bench.config.grafting.localizer), method="biases only", without=others
        )
        yield _score_dense_run(bench, label, "fine-tuning")


def lottery_tickets(bench: Bench) -> Iterator[Measurement]:
    """Keep tuned values inside a region and 0 outside, or the base's outside (Fig. 4b)."""
    shares = (0.001, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
    for label, name in enumerate(bench.names):
        run = bench.dense(label)
        ranking = bench.ranking(label, str(bench.config.grafting.localizer), dense=run)
        task = bench.task(label)
        for share in shares:
            region = bench.first(ranking, share)
            with (
                replace_parameters(task.head, run.head),
                lottery_ticket(task.model, run.tuned, region),
            ):
                ticket = bench.answers(label)
            graft = bench.graft_answers(label, bench.cut(run, region), run.head)
            yield Measurement(name, "0 outside (lottery ticket)", "score", ticket.score, share)
            yield Measurement(name, "base outside (graft)", "score", graft.score, share)


def optimizers(bench: Bench) -> Iterator[Measurement]:
    """Sweep grafts of runs by SGD, AdamW, and AdamW with L1 on the movement (Fig. 5).

    AdamW's learning rate is the one that dev chooses.
    """
    for label, name in enumerate(bench.names):

        def dev(changes: dict[str, Any], at: int = label) -> float:
            return bench.tuned_answers(at, bench.dense(at, **changes), split="valid").score

        rates = [{"optimizer": "adamw", "lr": rate} for rate in _ADAMW_RATES]
        adam, _ = max(train_candidates(rates, dev), key=itemgetter(1))
        plans: dict[str, dict[str, Any]] = {
            "SGD": {},
            "AdamW": adam,
            "AdamW + L1": {**adam, "l1": 1e-3},
        }
        for method, changes in plans.items():
            yield from _swept(
                bench, label, str(bench.config.grafting.localizer), method=method, **changes
            )
            yield _score_dense_run(bench, label, f"{method}: fine-tuning", **changes)
        constant = bench.tuned_answers(label, bench.dense(label)).best_constant
        yield Measurement(name, "best constant answer", "score", constant)


def top_probabilities(bench: Bench) -> Iterator[Measurement]:
    """Count rows by the probability of the answer, of fine-tuning and of the graft (Fig. 6)."""
    bins = 10
    for label, name in enumerate(bench.names):
        run = bench.dense(label)
        region = bench.region(label, run)
        models = {
            "fine-tuning": bench.tuned_answers(label, run),
            "grafting": bench.graft_answers(label, bench.cut(run, region), run.head),
        }
        for method, answers in models.items():
            counts = top_probability_histogram(answers.probabilities, bins=bins).double()
            for place, share in enumerate((counts / counts.sum()).tolist()):
                yield Measurement(name, method, "share of rows", share, (place + 0.5) / bins)


def fisher_masks(bench: Bench) -> Iterator[Measurement]:
    """Graft on FISH's and on random regions; their IoU with the learned one (Table 8)."""
    shares = (1e-4, 1e-3, 1e-2)
    for label, name in enumerate(bench.names):
        run = bench.dense(label)
        depth = bench.size(shares[-1])
        learned = bench.ranking(label, str(bench.config.grafting.localizer), dense=run, depth=depth)
        batches = max(1, _FISH_ROWS // bench.config.grafting.mask_batch)
        rankings = {
            str(bench.config.grafting.localizer): learned,
            "fish": bench.ranking(label, "fish", dense=run, depth=depth, steps=batches),
            "random": bench.ranking(label, "random", dense=run, depth=depth),
        }
        for localizer, ranking in rankings.items():
            for share in shares:
                region = bench.first(ranking, share)
                answers = bench.graft_answers(label, bench.cut(run, region), run.head)
                yield from _read(name, localizer, answers, x=share)
                both = region.jaccard(bench.first(learned, share))
                yield Measurement(name, localizer, "IoU with the learned region", both, share)


def layers(bench: Bench) -> Iterator[Measurement]:
    """Say in which layers a region lies (Fig. 9)."""
    for name, region in _regions(bench):
        found = anatomy(region)
        for layer, share in zip(found.layers, found.by_layer.tolist(), strict=True):
            yield Measurement(name, "region", "share of the region", share, float(layer))


def kinds(bench: Bench) -> Iterator[Measurement]:
    """Say in which kinds of parameters a region lies (Fig. 10)."""
    for name, region in _regions(bench):
        found = anatomy(region)
        for kind, share in zip(found.kinds, found.by_kind.tolist(), strict=True):
            yield Measurement(name, kind, "share of the region", share)


def train_test_gaps(bench: Bench) -> Iterator[Measurement]:
    """Measure the gap between train and test, and what Theorems D.2 and D.4 allow (App. D).

    The bound is of fp32 values and of a region that the training set chose; it leaves out the bias
    of the region. ε₂ is how much lower than re-training the graft scores on the training rows.
    """
    for label, name in enumerate(bench.names):
        run = bench.dense(label)
        region = bench.region(label, run)
        rows = len(bench.task(label).train)
        values, head = retrain_region(bench, label, region)
        models = {
            "fine-tuning": lambda split, at=label, of=run: bench.tuned_answers(at, of, split=split),
            "grafting": lambda split, at=label, of=run, on=region: bench.graft_answers(
                at, bench.cut(of, on), of.head, split=split
            ),
            "re-trained graft": lambda split, at=label, v=values, h=head: bench.graft_answers(
                at, v, h, split=split
            ),
        }
        scores = {m: (answer("train").score, answer("test").score) for m, answer in models.items()}
        total, most = bench.layout.total, scores["re-trained graft"][0]
        for method, (train, test) in scores.items():
            yield Measurement(name, method, "train score", train)
            yield Measurement(name, method, "test score", test)
            yield Measurement(name, method, "gap", train - test)
            whole = method == "fine-tuning"
            variance = variance_bound(
                size=total if whole else len(region),
                values=2**32,
                rows=rows,
                delta=0.05,
                log_regions=0.0 if whole else len(region) * math.log(total),
                retrained=method != "grafting",
            )
            fit = max(0.0, most - train) if method == "grafting" else 0.0
            bound = generalization_bound(variance, fit=fit)
            yield Measurement(name, method, "bound of the excess, without bias", bound)


def _regions(bench: Bench) -> Iterator[tuple[str, Region]]:
    for label, name in enumerate(bench.names):
        yield name, bench.region(label, bench.dense(label))


def _swept(
    bench: Bench,
    label: int,
    localizer: str,
    *,
    method: str,
    without: Region | None = None,
    **changes: Any,
) -> Iterator[Measurement]:
    """Score grafts of growing regions on one dense run."""
    name, run = bench.names[label], bench.dense(label, **changes)
    ranking = bench.ranking(label, localizer, dense=run)
    most = ranking.order.numel()
    if without is not None:
        most = len(Region.of(bench.layout, ranking.order) - without)
    sizes = sorted({min(most, bench.size(share)) for share in DENSITIES})
    task = bench.task(label)
    with replace_parameters(task.head, run.head):
        found = sweep_densities(
            task.model,
            run.tuned,
            ranking,
            sizes=sizes,
            measure=lambda: bench.answers(label),
            without=without,
        )
    for size, answers in found:
        yield Measurement(name, method, "score", answers.score, size / bench.layout.total)


def _score_dense_run(bench: Bench, label: int, method: str, **changes: Any) -> Measurement:
    """Score the whole dense run, at density 1."""
    answers = bench.tuned_answers(label, bench.dense(label, **changes))
    return Measurement(bench.names[label], method, "score", answers.score, 1.0)


def _read(
    name: str, method: str, answers: Answers, *, x: float | None = None
) -> Sequence[Measurement]:
    return (
        Measurement(name, method, "score", answers.score, x),
        Measurement(name, method, "ECE", answers.ece, x),
    )
