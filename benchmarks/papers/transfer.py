"""Experiments beyond a task's own distribution, and along its dense run.

Panigrahi et al., 2023, Table 3, Fig. 7 and Fig. 15 (https://arxiv.org/abs/2302.06600).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import pairwise

import torch

from cl_graft.errors import InputError
from cl_graft.grafts.graft import gather, grafted, snapshot
from cl_graft.grafts.model_state import replace_parameters
from cl_graft.grafts.region import Region
from cl_graft.runtime.seeding import derive
from cl_graft.training.dense_run import DenseRun
from cl_graft.training.learnable_task import Passes
from papers.answers import Answers
from papers.bench import Bench
from papers.graft_variants import interpolated
from papers.measurements import Measurement
from papers.paper_metrics import without_a_share
from papers.retraining import bitfit, retrain_region
from papers.trajectory import label_by_model, walk_dense_run

ELSEWHERE: Mapping[str, tuple[str, ...]] = {
    "sst2_sent": ("yelp_polarity", "imdb"),
    "qnli": ("mnli", "snli"),
    "mpqa": ("yelp_polarity", "sst2_sent"),
}
"""Pairs of tasks, learned and asked, of Tables 3 and 7."""

_NEAR = ("mnli", "snli")
"""The pair of Fig. 7 whose shift is small."""

_SHARES_OF_ROWS = (1 / 16, 1 / 4, 1.0)
"""Share of a task's rows that Fig. 7c learns."""

LABEL_MAPS: Mapping[tuple[str, str], Mapping[str, str]] = {
    ("qnli", "mnli"): {"entailment": "entailment", "contradiction": "not_entailment"},
    ("qnli", "snli"): {"entailment": "entailment", "contradiction": "not_entailment"},
}
"""Labels of a second task in words of the first; rows with others are left out. Of pairs that are
not here labels of one name are the same, or, where no name is, those of the same order."""


_GRAFTS = (1e-4, 1e-3, 1e-2, 1e-1)
"""Densities of the grafts beside WiSE-FT and WiSE-Graft."""

_FOLLOWED: Mapping[str, int] = {
    "region alone": 1,
    "ten times its size": 10,
    "a hundred times its size": 100,
}
"""The regions of Fig. 15, as multiples of the config's density."""

_APART = 0.05
"""Of the scores on train and dev: the paper's Fig. 15 takes the step where they part."""


def out_of_distribution(bench: Bench) -> Iterator[Measurement]:
    """Learn a task and answer others (Table 3)."""
    for source, targets in pairs(bench):
        run = bench.dense(source)
        region = bench.region(source, run)
        task = bench.task(source)
        ways = {
            "re-trained graft": retrain_region(bench, source, region),
            "BitFit": bitfit(bench, source),
            "grafting": (bench.cut(run, region), run.head),
        }
        everything = Region.full(bench.layout)
        ways["fine-tuning"] = (gather(run.tuned, everything), run.head)
        for method, (graft, head) in ways.items():
            with grafted(task.model, graft), replace_parameters(task.head, head):
                yield from elsewhere(bench, source, targets, method)


def wise(bench: Bench) -> Iterator[Measurement]:
    """Walk from the base to the tuned and to the grafted model, and along grafts (Fig. 7)."""
    for source, targets in [*pairs(bench), *near(bench)]:
        run, task = bench.dense(source), bench.task(source)
        depth = bench.size(_GRAFTS[-1])
        ranking = bench.ranking(
            source, str(bench.config.grafting.localizer), dense=run, depth=depth
        )
        region = bench.first(ranking, bench.density)
        for share in _GRAFTS:
            graft = bench.cut(run, bench.first(ranking, share))
            with bench.apply_graft(source, graft, run.head):
                yield from elsewhere(bench, source, targets, "grafts by density", x=share)
        for method, inside in (("WiSE-FT", None), ("WiSE-Graft", region)):
            for step in range(6):
                alpha = step / 5
                moved = interpolated(task.model, run.tuned, alpha=alpha, region=inside)
                with moved, replace_parameters(task.head, run.head):
                    yield from elsewhere(bench, source, targets, method, x=alpha)


def more_rows(bench: Bench) -> Iterator[Measurement]:
    """Learn more and more of a task's rows, and answer others (Fig. 7c)."""
    for source, targets in pairs(bench):
        bench.schedule(source)  # one for all, chosen on all rows
        rows = len(bench.task(source).train)
        for share in _SHARES_OF_ROWS:
            kept = without_a_share(rows, share=1 - share, seed=derive(bench.seed, "rows"))
            with bench.fewer_rows(source, kept) if share < 1 else nullcontext():
                run = bench.dense(source)
                graft = bench.cut(run, bench.region(source, run))
                whole = gather(run.tuned, Region.full(bench.layout))
                for method, values in (("fine-tuning", whole), ("grafting", graft)):
                    with bench.apply_graft(source, values, run.head):
                        yield from elsewhere(bench, source, targets, method, x=float(len(kept)))


def core_skills(bench: Bench) -> Iterator[Measurement]:
    """Follow regions, found at an intermediate checkpoint, through the run (Fig. 15)."""
    for label in range(len(bench.names)):
        yield from _follow(bench, label)


def _follow(bench: Bench, label: int) -> Iterator[Measurement]:
    name, task, seen = bench.names[label], bench.task(label), _walk(bench, label)
    gaps = {step: _gap(bench, label, at) for step, at in seen.items()}
    checkpoint = find_parting(gaps, apart=_APART)
    run = seen[checkpoint]
    with replace_parameters(task.parameters, run.tuned), replace_parameters(task.head, run.head):
        labelled = label_by_model(task)
    shares = {method: min(1.0, n * bench.density) for method, n in _FOLLOWED.items()}
    localizer, depth = str(bench.config.grafting.localizer), bench.size(max(shares.values()))
    ranking = bench.ranking(label, localizer, dense=run, task=labelled, depth=depth)
    yield Measurement(name, "checkpoint", "step", float(checkpoint))
    for step, at in seen.items():
        whole = bench.tuned_answers(label, at).score
        yield Measurement(name, "whole model", "score", whole, float(step))
        for method, share in shares.items():
            graft = bench.cut(at, bench.first(ranking, share))
            alone = bench.graft_answers(label, graft, at.head).score
            yield Measurement(name, method, "score", alone, float(step))


def _walk(bench: Bench, label: int) -> dict[int, DenseRun]:
    """Return what a run was at eight steps, evenly spaced."""
    task, schedule = bench.task(label), bench.schedule(label)
    seen: dict[int, DenseRun] = {}

    def keep(step: int) -> None:
        seen[step] = DenseRun(snapshot(task.parameters), snapshot(task.head), None, Passes())

    marks = {max(1, round(schedule.steps * share / 8)) for share in range(1, 9)}
    walk_dense_run(task, schedule, seed=bench.seed, at=marks, visit=keep)
    return seen


def _gap(bench: Bench, label: int, run: DenseRun) -> float:
    """Return by how much a run scores better on train than on dev."""
    train, dev = (bench.tuned_answers(label, run, split=one).score for one in ("train", "valid"))
    return train - dev


def find_parting(gaps: Mapping[int, float], *, apart: float) -> int:
    """Return the first step from which on train and dev stay apart, else the last one.

    Early in a run a few dev rows tell them apart by chance.
    """
    together = [step for step, gap in gaps.items() if gap <= apart]
    later = [step for step in gaps if not together or step > together[-1]]
    return later[0] if later else max(gaps)


def pairs(bench: Bench) -> list[tuple[int, list[int]]]:
    """Return what is learned, and what each is asked on: pairs of the paper, or of neighbours."""
    if len(bench.names) < 2:
        raise InputError(
            f"{bench.names[0]} alone: experiments out of distribution ask a second task what was "
            "learned on a first; name two or more, as in --set 'stream.tasks=[reviews, tweets]'"
        )
    places = {name: place for place, name in enumerate(bench.names)}
    asked = {n: [places[o] for o in ELSEWHERE.get(n, ()) if o in places] for n in places}
    answered = {place for found in asked.values() for place in found}
    known = [(places[n], found) for n, found in asked.items() if found]
    chosen = [(learned, found) for learned, found in known if learned not in answered]
    return chosen or [(i, [j]) for i, j in list(pairwise(range(len(places))))[::2]]


def near(bench: Bench) -> list[tuple[int, list[int]]]:
    """Return the pair of a small shift, where it is not among the others."""
    names = bench.names
    if not set(_NEAR) <= {*names}:
        return []
    pair = (names.index(_NEAR[0]), [names.index(_NEAR[1])])
    return [] if pair in pairs(bench) else [pair]


def elsewhere(
    bench: Bench, source: int, targets: Sequence[int], method: str, *, x: float | None = None
) -> Iterator[Measurement]:
    """Ask the model as it is now the task it learned, and others through the head of that one."""
    for target in targets:
        name = f"{bench.names[source]} → {bench.names[target]}"
        yield Measurement(name, method, "score in distribution", bench.answers(source).score, x)
        answers = bench.answers(target, through=source)
        seen = _translate(bench, source, target, answers)
        yield Measurement(name, method, "accuracy out of distribution", seen, x)


def _translate(bench: Bench, source: int, target: int, answers: Answers) -> float:
    """Return the accuracy on the rows whose label the first task knows."""
    first, second = (bench.stream.tasks[place].task for place in (source, target))
    names, others = list(first.label_names), second.label_names
    same = {name: name for name in others if name in names}
    words = LABEL_MAPS.get((first.name, second.name), same)
    if not words:
        known = min(len(names), len(others))
        meant = [place if place < known else -1 for place in range(len(others))]
    else:
        meant = [names.index(words[w]) if w in words else -1 for w in others]
    targets = torch.tensor(meant)[answers.targets]
    rows = targets >= 0
    right = answers.logits.argmax(-1)[rows] == targets[rows]
    return float(right.double().mean()) if len(right) else float("nan")
