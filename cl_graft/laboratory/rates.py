"""Experiments of this project's own: what localization is worth once a region is trained again.

A graft that keeps its tuned values needs a good region. A region that is trained from the base may
need it less, and how much less depends on the learning rate: few coordinates take larger steps.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from cl_graft.analysis import relative_gain
from cl_graft.laboratory.bench import Answers, Bench
from cl_graft.laboratory.readings import Reading
from cl_graft.learning import DenseRun
from cl_graft.metrics import score
from cl_graft.passes import Passes
from cl_graft.region import Region
from cl_graft.warmup import warm_up_head

__all__ = ["RATES", "gains_over_the_majority", "majority_score", "region_rates"]

RATES = (0.03, 0.1, 0.3, 1.0)
"""Learning rates of regions."""

_WARM_UP = 512


def region_rates(bench: Bench) -> Iterator[Reading]:
    """Train regions of several localizers again, each over a grid of learning rates.

    ``base_gradient`` sees a head fitted to the base, as it would without a dense run; the others
    see the dense run.
    """
    for label, name in enumerate(bench.names):
        run = bench.dense(label, path=True)
        full = bench.tuned_answers(label, run)
        yield Reading(name, "fine-tuning", "score", full.score)
        yield Reading(name, "fine-tuning", "ECE", full.ece)
        regions: dict[str, Region] = {}
        for localizer in (bench.config.localizer, "movement", "path_integral", "random"):
            regions[localizer] = bench.region(label, run, localizer=localizer)
        regions["base_gradient"] = bench.region(
            label, _warmed_up(bench, label), localizer="base_gradient"
        )
        for localizer, region in regions.items():
            graft = bench.graft_answers(label, bench.cut(run, region), run.head)
            yield Reading(name, localizer, "score, not re-trained", graft.score)
            yield from _over_rates(bench, label, localizer, region)


def gains_over_the_majority(bench: Bench) -> Iterator[Reading]:
    """Say what part of fine-tuning's gain over the best constant answer a re-trained graft has."""
    for label, name in enumerate(bench.names):
        run = bench.dense(label)
        full = bench.tuned_answers(label, run)
        base = majority_score(full)
        again = bench.retrained_answers(label, bench.region(label, run))
        yield Reading(name, "best constant answer", "score", base)
        yield Reading(name, "fine-tuning", "score", full.score)
        yield Reading(name, "fine-tuning", "ECE", full.ece)
        yield Reading(name, "re-trained graft", "score", again.score)
        yield Reading(name, "re-trained graft", "ECE", again.ece)
        gain = relative_gain(again.score, base=base, full=full.score)
        if gain is not None:
            yield Reading(name, "re-trained graft", "relative gain", gain)


def majority_score(answers: Answers) -> float:
    """Return the best score that one and the same answer to every row has."""
    classes = answers.logits.shape[1]
    constant = torch.eye(classes).unsqueeze(1).expand(-1, len(answers.targets), -1)
    return max(score(logits, answers.targets, answers.metric) for logits in constant)


def _over_rates(bench: Bench, label: int, method: str, region: Region) -> Iterator[Reading]:
    """Train a region at every rate, and say which one dev would choose."""
    name = bench.names[label]
    best: tuple[float, Answers] | None = None
    for rate in RATES:
        values, head = bench.retrained(label, region, lr=rate)
        answers = bench.graft_answers(label, values, head)
        dev = bench.graft_answers(label, values, head, split="valid").score
        yield Reading(name, method, "score", answers.score, rate)
        yield Reading(name, method, "ECE", answers.ece, rate)
        if best is None or dev > best[0]:
            best = dev, answers
    if best is not None:
        yield Reading(name, method, "score at the rate that dev chooses", best[1].score)
        yield Reading(name, method, "ECE at the rate that dev chooses", best[1].ece)


def _warmed_up(bench: Bench, label: int) -> DenseRun:
    """Return what stands in for a dense run: a head fitted to the base."""
    task = bench.problem(label)
    head = warm_up_head(task, rows=_WARM_UP, seed=bench.seed)
    return DenseRun({}, head, None, Passes())
