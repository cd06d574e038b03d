"""Sub-skills: whether a graft can be taken apart by the groups of rows that its coordinates serve.

An open question of Panigrahi et al., 2023 (https://arxiv.org/abs/2302.06600), read as their Fig. 8:
a region is split by the gains of its coordinates, each part alone is written onto the base, and
every group of rows is asked. A part that holds a sub-skill brings its own group a large share of
what the whole graft brings it, more than a random part of the same size does, and the other groups
less.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from cl_graft.errors import InputError
from cl_graft.grafts.graft import Graft
from cl_graft.grafts.model_state import replace_parameters
from cl_graft.grafts.region import Region
from cl_graft.metrics.statistics import mean_interval, paired_t_test
from cl_graft.runtime.seeding import derive, permutation
from cl_graft.training.linear_probe import fit_head
from papers.bench import Bench
from papers.measurements import Measurement, Summary
from papers.paper_metrics import relative_gain
from papers.region_split import group_gains, split_at_random, split_by_gain
from papers.retraining import retrain_region

INTENTS: Mapping[str, Sequence[str]] = {
    "time off": ("next_holiday", "pto_balance", "pto_request", "pto_request_status", "pto_used"),
    "pay": ("direct_deposit", "income", "payday", "taxes", "w2"),
    "cover and meetings": (
        "insurance",
        "insurance_change",
        "meeting_schedule",
        "rollover_401k",
        "schedule_meeting",
    ),
}
"""The 15 intents of CLINC150's domain "work", in three groups of five."""

BANKING: Mapping[str, Sequence[str]] = {
    "cards": ("card_arrival", "card_delivery_estimate"),
    "late": ("pending_transfer", "transfer_timing", "transfer_not_received_by_recipient"),
    "stopped": ("failed_transfer", "declined_transfer", "cancel_transfer"),
}
"""The intents of the built-in task banking, for the scale smoke."""

_GRADIENT_ROWS = 128
"""Training rows of a group that gains are taken on."""
_HEAD_ROWS = 256
"""Training rows that heads are fitted to."""
_DRAWS = 3
"""Random splits a graft and seed."""
_LEAST = 0.02
"""Smallest gain of the whole graft of which a share is read, as a fraction or in units of loss."""
_LEAD, _CHANCE = "split by gain", "random splits"


@dataclass(frozen=True, eq=False)
class _Group:
    """Rows of a group: places in the training split, and in the test split."""

    name: str
    train: Sequence[int]
    test: Tensor


_Scores = Mapping[tuple[str, str], Sequence[float]]
"""By head and measure, one score a group, higher is better: accuracy, and the loss's negative."""


def sub_skills(bench: Bench) -> Iterator[Measurement]:
    """Take grafts apart, as the dense run left them and re-trained, and ask every group of rows."""
    for label, name in enumerate(bench.names):
        groups = _find_groups(bench, label)
        run = bench.dense(label)
        region = bench.region(label, run)
        grafts = {
            "graft": (bench.cut(run, region), run.head),
            "re-trained graft": retrain_region(bench, label, region),
        }
        for kind, (graft, head) in grafts.items():
            for m in _take_apart(bench, label, groups, graft, head):
                place = f"{name}: {m.task}" if m.task else name
                yield Measurement(place, m.method, f"{m.measure}, {kind}", m.value)


def conclude(
    cells: Sequence[Sequence[Measurement]], rows: Sequence[Summary]
) -> Iterator[Measurement]:
    """Compare parts by gain with random ones, paired over cells, in which a task counts once.

    Two questions decide whether a graft can be taken apart. Do parts serve their own group more
    than other parts do ("own above others")? That alone can also come of other parts that harm. And
    do they carry more of it than any part of their size ("own above random")?
    """
    del rows
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    for cell in cells:
        for (task, of), means in _means(cell).items():
            found.setdefault((task, of), []).append(means)
    for (task, of), every in found.items():
        column = {kind: [means[kind] for means in every] for kind in every[0]}
        for kind in ("own parts", "other parts", "random parts"):
            for value in column[kind]:
                yield Measurement(task, kind, f"mean relative gain, {of}", value)
        for question, first, second in (
            ("own above others", _LEAD, _CHANCE),
            ("own above random", "own parts", "random parts"),
        ):
            for what, value in _difference(column[first], column[second]).items():
                yield Measurement(task, f"{question}{what}", f"mean relative gain, {of}", value)


def _means(cell: Sequence[Measurement]) -> dict[tuple[str, str], dict[str, float]]:
    """Return means over groups, by task and by measure, graft and head."""
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    for m in cell:
        task, _, group = m.task.partition(": ")
        kind, _, of = m.measure.partition(", ")
        if kind == "relative gain":
            own = {f"part for {group}": "own parts", "random part": "random parts"}
            which = own.get(m.method, "other parts")
        elif kind == "own part above others":
            which = m.method
        else:
            continue
        found.setdefault((task, of), {}).setdefault(which, []).append(m.value)
    return {
        place: {kind: math.fsum(values) / len(values) for kind, values in own.items()}
        for place, own in found.items()
    }


def _difference(first: Sequence[float], second: Sequence[float]) -> dict[str, float]:
    """Return the mean difference, its 95 % interval and p where there are any."""
    gap, ends = mean_interval([a - b for a, b in zip(first, second, strict=True)])
    found = {"": gap}
    if ends is not None:
        found |= {", 95 % from": ends[0], ", 95 % to": ends[1]}
    p = paired_t_test(first, second)[1]
    return found if p is None else {**found, ", p": p}


def _find_groups(bench: Bench, label: int) -> list[_Group]:
    """Return the groups of a task's rows: kinds of intents."""
    encoded = bench.stream.tasks[label]
    task = encoded.task
    names = BANKING if task.name == "banking" else INTENTS
    of_label = {intent: group for group, intents in names.items() for intent in intents}
    if not set(task.label_names) <= set(of_label):
        raise InputError(
            f"no sub-skills are known of {task.name}: sub_skills takes the built-in banking and "
            "the domain work of clinc150"
        )
    own = {
        split: [
            of_label[task.label_names[int(rows[place].label)]]
            for place in encoded.rows[split].tolist()
        ]
        for split, rows in (("train", task.train), ("test", task.test))
    }
    groups = []
    for group in names:
        train, test = (
            [place for place, of in enumerate(own[split]) if of == group]
            for split in ("train", "test")
        )
        if not train or not test:
            raise InputError(f"{task.name} has no rows of the group {group!r}; ask for more rows")
        drawn = permutation(len(train), bench.seed, "group rows").tolist()[:_GRADIENT_ROWS]
        groups.append(_Group(group, [train[place] for place in sorted(drawn)], torch.tensor(test)))
    return groups


def _take_apart(
    bench: Bench, label: int, groups: Sequence[_Group], graft: Graft, head: Mapping[str, Tensor]
) -> Iterator[Measurement]:
    """Split a graft by gain and at random, and ask the groups of every part."""
    with replace_parameters(bench.task(label).head, head):
        gains = group_gains(bench.task(label), graft, [group.train for group in groups])
    parts = split_by_gain(graft.region, gains)

    def ask(region: Region) -> _Scores:
        return _ask(bench, label, groups, graft.on(region), head)

    base, whole = ask(Region.empty(graft.region.layout)), ask(graft.region)
    own = [ask(part) for part in parts]
    sizes = [len(part) for part in parts]
    seeds = [derive(bench.seed, bench.config.stream.data_seed or 0, n) for n in range(_DRAWS)]
    drawn = [
        [ask(part) for part in split_at_random(graft.region, sizes, seed=seed)] for seed in seeds
    ]
    named = {"base": base, "whole": whole}
    named |= {f"part for {group.name}": own[place] for place, group in enumerate(groups)}
    for which in base:
        of = f"{which[1]}, {which[0]}"
        for method, scores in named.items():
            for group, score in zip(groups, scores[which], strict=True):
                yield Measurement(group.name, method, of, abs(score))
        shares = _shares(own, base, whole, which)
        by_chance = [_shares(split, base, whole, which) for split in drawn]
        for place, group in enumerate(groups):
            column = [row[place] for split in by_chance for row in split]
            rows = {f"part for {g.name}": shares[n][place] for n, g in enumerate(groups)}
            rows["random part"] = _mean(column)
            for method, share in rows.items():
                if share is not None:
                    yield Measurement(group.name, method, f"relative gain, {of}", share)
        for method, splits in ((_LEAD, [shares]), (_CHANCE, by_chance)):
            lead = _mean([lead_of_own_parts(split) for split in splits])
            if lead is not None:
                yield Measurement("", method, f"own part above others, {of}", lead)


def _ask(
    bench: Bench, label: int, groups: Sequence[_Group], graft: Graft, head: Mapping[str, Tensor]
) -> _Scores:
    """Score a graft on the base by group, under its own head and under one that is fitted to it."""
    task = bench.task(label)
    module = task.head_module
    if module is None:
        raise InputError("sub_skills fits heads, which prompts lack; choose model.family=encoder")
    inputs, targets = bench.stream.tasks[label].splits["test"]
    rows = torch.cat([group.test for group in groups])
    seen: list[Tensor] = []
    with bench.apply_graft(label, graft, head), torch.no_grad():
        fitted = fit_head(task, rows=_HEAD_ROWS, seed=bench.seed)
        handle = module.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
        try:
            for batch in rows.split(bench.config.training.eval_batch):
                task.forward(inputs[batch].to(bench.device))
        finally:
            handle.remove()
        features = torch.cat(seen)
        logits = {"own head": module(features).float().cpu()}
        with replace_parameters(task.head, fitted):
            logits["head fitted"] = module(features).float().cpu()
    found: dict[tuple[str, str], list[float]] = {}
    counts = [len(group.test) for group in groups]
    for name, answers in logits.items():
        for own, right in zip(answers.split(counts), targets[rows].split(counts), strict=True):
            accuracy = float((own.argmax(-1) == right).double().mean())
            found.setdefault((name, "accuracy"), []).append(accuracy)
            found.setdefault((name, "loss"), []).append(-float(F.cross_entropy(own, right)))
    return found


def _shares(
    parts: Sequence[_Scores], base: _Scores, whole: _Scores, which: tuple[str, str]
) -> list[list[float | None]]:
    """Return the relative gain (Eq. 5) of each part, by row, for each group, by column."""
    return [
        [
            relative_gain(score, base=low, full=high) if high - low >= _LEAST else None
            for score, low, high in zip(part[which], base[which], whole[which], strict=True)
        ]
        for part in parts
    ]


def lead_of_own_parts(shares: Sequence[Sequence[float | None]]) -> float | None:
    """Return the own part's relative gain less the others' mean, the mean over groups."""
    leads: list[float] = []
    for place in range(len(shares)):
        column = [row[place] for row in shares]
        own = column.pop(place)
        others = _mean(column)
        if own is not None and others is not None:
            leads.append(own - others)
    return _mean(leads)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None
