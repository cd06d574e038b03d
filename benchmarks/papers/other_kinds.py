"""Whether skills of other kinds than classification lie in small regions.

Each body gets a head of its own, fitted to it in one way whatever the kind of the task: the base
(the linear probe), the dense run, its grafts, and regions that are trained again from the base. So
a score tells what is in the body. Runs start from the head of the probe, and the share of the gain
of a body is (its score - the probe's) / (the dense run's score - the probe's), by the task's own
metric. A language model that writes its answers has no head to fit: the base is asked as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from operator import itemgetter

from cl_graft.grafts.graft import Graft, copy_, gather
from cl_graft.grafts.hashing import hash_tensors
from cl_graft.grafts.model_state import replace_parameters
from cl_graft.grafts.region import Parameters, Region
from cl_graft.settings.schedule_of_task import train_candidates
from cl_graft.training.dense_run import DenseRun
from cl_graft.training.linear_probe import fit_head
from papers.bench import Bench
from papers.measurements import Measurement
from papers.paper_metrics import relative_gain
from papers.retraining import retrain_region

LOCALIZERS = ("learned_mask", "random")
"""What is compared, the control last."""

TEXT_LOCALIZERS = ("movement", "random")
"""The same for language models, whose masks are dear to learn."""

RATES = (0.3, 3.0)
"""Learning rates of regions, of which dev chooses one for each region."""

TEXT_RATES = (0.1, 0.3)
"""The same of language models, of which larger ones diverge."""

_ROWS = 256
"""Training rows that heads are fitted to."""
_LEAST_GAIN = 0.02
"""Smallest gain of fine-tuning over the linear probe of which a share is read."""


def localize_kinds(bench: Bench) -> Iterator[Measurement]:
    """Compare grafts and regions trained again with random ones of their size, for each task."""
    for label, name in enumerate(bench.names):
        probe = _start_from_probe(bench, label)
        yield Measurement(name, "linear probe", "score, head fitted", probe)
        run = bench.dense(label)
        yield Measurement(
            name, "fine-tuning", "score, own head", bench.tuned_answers(label, run).score
        )
        with replace_parameters(bench.task(label).parameters, run.tuned):
            dense = _score_fitted(bench, label)
        yield Measurement(name, "fine-tuning", "score, head fitted", dense)

        def score_fitted(graft: Graft, head: Parameters, label: int = label) -> float:
            with bench.apply_graft(label, graft, head):
                return _score_fitted(bench, label)

        yield from _compare_regions(
            bench,
            label,
            run,
            localizers=LOCALIZERS,
            rates=RATES,
            measure="score, head fitted",
            score=score_fitted,
            base=probe,
            dense=dense,
        )


def localize_text(bench: Bench) -> Iterator[Measurement]:
    """Compare grafts of a language model and regions trained again with random ones, task by task.

    Everything is scored by the answers that the model writes.
    """
    for label, name in enumerate(bench.names):
        base = bench.answers(label).score
        yield Measurement(name, "zero-shot", "score", base)
        run = bench.dense(label)
        dense = bench.tuned_answers(label, run).score
        yield Measurement(name, "fine-tuning", "score", dense)

        def score_written(graft: Graft, head: Parameters, label: int = label) -> float:
            return bench.graft_answers(label, graft, head).score

        yield from _compare_regions(
            bench,
            label,
            run,
            localizers=TEXT_LOCALIZERS,
            rates=TEXT_RATES,
            measure="score",
            score=score_written,
            base=base,
            dense=dense,
        )


def _compare_regions(
    bench: Bench,
    label: int,
    run: DenseRun,
    *,
    localizers: Sequence[str],
    rates: Sequence[float],
    measure: str,
    score: Callable[[Graft, Parameters], float],
    base: float,
    dense: float,
) -> Iterator[Measurement]:
    """Score the grafts of each localizer at each density, and their regions trained again."""
    name, densities = bench.names[label], bench.config.grafting.budgets
    for localizer in localizers:
        ranking = bench.ranking(label, localizer, dense=run, depth=bench.size(max(densities)))
        for density in densities:
            region = bench.first(ranking, density)
            cut = gather(run.tuned, region), run.head
            again, rate = _train_again(bench, label, region, rates)
            if measure != "score":
                own = bench.graft_answers(label, *cut).score
                yield Measurement(name, f"{localizer}, graft", "score, own head", own, density)
            for way, found in (("graft", cut), ("trained again", again)):
                method, value = f"{localizer}, {way}", score(*found)
                yield Measurement(name, method, measure, value, density)
                share = relative_gain(value, base=base, full=dense)
                if share is not None and dense - base >= _LEAST_GAIN:
                    yield Measurement(name, method, "share of the gain", share, density)
            method = f"{localizer}, trained again"
            yield Measurement(name, method, "rate that dev chooses", rate, density)


def _start_from_probe(bench: Bench, label: int) -> float:
    """Let every run of a task start from the head that fits the base; return its score."""
    task = bench.task(label)
    copy_(task.head, fit_head(task, rows=_ROWS, seed=bench.seed))
    started = hash_tensors(task.to_cache(task.head))
    bench.replace_task(label, replace(task, content=f"{task.content}|{started}"))
    return bench.answers(label).score


def _score_fitted(bench: Bench, label: int) -> float:
    """Score the model as it is now under a head that is fitted to it."""
    task = bench.task(label)
    head = fit_head(task, rows=_ROWS, seed=bench.seed)
    with replace_parameters(task.head, head):
        return bench.answers(label).score


def _train_again(
    bench: Bench, label: int, region: Region, rates: Sequence[float]
) -> tuple[tuple[Graft, Parameters], float]:
    """Train a region from the base at every rate; return what dev chooses, and its rate."""
    trained = train_candidates(rates, lambda rate: retrain_region(bench, label, region, lr=rate))
    devs = [
        (bench.graft_answers(label, *own, split="valid").score, rate, own) for rate, own in trained
    ]
    _, rate, own = max(devs, key=itemgetter(0))
    return own, rate
