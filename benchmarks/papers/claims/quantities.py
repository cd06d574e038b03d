"""Numbers that claims compare and that are more than one measurement, as functions of a view."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from papers.claims.view import MissingMeasurement, View
from papers.paper_metrics import relative_gain

_MANY_ROWS = 1000
"""Rows a class from which on a task has a few thousand."""


def share_of_ece_taken_away(view: View) -> float:
    """Return the share of the calibration error that a graft takes away which keeps the score."""
    if view("grafting") <= 0.95 * view("fine-tuning"):
        raise MissingMeasurement("task whose graft loses less than 5 % of the score")
    return 1 - view("grafting", "ECE") / view("fine-tuning", "ECE")


def gap_of_many_rows(view: View) -> float:
    """Return the gap between train and test where a task has a few thousand rows."""
    shots = view.config.get("stream.shots")
    if shots is not None and shots < _MANY_ROWS:
        raise MissingMeasurement("task of a few thousand rows")
    return view("re-trained graft", "gap")


LOW = (1e-4, 3e-4, 1e-3)
"""Densities that count as low on a model of ten million coordinates."""


AS_MANY = 1e-3
"""The density at which a model of ten million coordinates has about as many of them in a region as
the paper's 0.01 % of 85 million, 8,505."""


def lead_at_low_density(view: View, a: str, b: str) -> float:
    """Return by how much the curve of a lies above that of b at low densities."""
    return sum(view(a, x=x) - view(b, x=x) for x in LOW) / len(LOW)


def gain_localized(view: View, experiment: str) -> float:
    """Return the share of fine-tuning's gain that a learned graft of 0.1 % keeps.

    The gain is that over about a hundred random weights, which carry nothing: a share of the score
    would hardly tell a learned region from a random one.
    """
    return _part_of_gain(
        view(view.learned, x=AS_MANY, experiment=experiment),
        base=view("random", x=1e-5, experiment=experiment),
        full=view("fine-tuning", experiment=experiment),
        what="fine-tuning gains 2 points over random weights",
    )


def share_in_three_kinds(view: View) -> float:
    """Return the share of a region in value matrices, first feed-forward layers and LayerNorms."""
    names = [
        method
        for method in view.methods("share of the region")
        if any(part in method for part in (".value.", "intermediate.", "LayerNorm"))
    ]
    if not names:
        raise MissingMeasurement("share of the region of such parameters")
    return sum(view(name, "share of the region") for name in names)


def share_in_the_middle(view: View) -> float:
    """Return the share of a region in the middle third of the layers."""
    shares = view.curve("region", "share of the region")
    layers = [layer for layer in shares if layer >= 0]
    third = len(layers) // 3
    return sum(shares[layer] for layer in layers[third : len(layers) - third])


def followed_region(view: View) -> tuple[float, float]:
    """Follow a region found at a checkpoint, in each seed at its own."""
    shares, later = [], []
    for one in view.seeds():
        found = one("checkpoint", "step")
        whole, alone = (one.curve(method) for method in ("whole model", "region alone"))
        there, last = min(whole, key=lambda step: abs(step - found)), max(whole)
        shares.append(alone[there] / whole[there])
        later.append((whole[last] - whole[there]) - (alone[last] - alone[there]))
    return fmean(shares), fmean(later)


def gain_kept(view: View, method: str) -> float:
    """Return the share of fine-tuning's gain that a graft of 0.1 % keeps."""
    return _part_of_gain(
        view(method, x=AS_MANY),
        base=view("best constant answer"),
        full=view(f"{method}: fine-tuning"),
        what=f"{method} gains 2 points over the best constant answer",
    )


def _part_of_gain(score: float, *, base: float, full: float, what: str) -> float:
    """Return the relative gain, of which little can be said where the whole gain is small."""
    gain = relative_gain(score, base=base, full=full)
    if gain is None or full - base < 0.02:
        raise MissingMeasurement(f"task where {what}")
    return gain


_OUT = "accuracy out of distribution"


_PEERS = ("LoRA, rank 1", "Houlsby, size 1", "Pfeiffer, size 2")
"""Those of about 0.1 % of MiniLM: 0.09, 0.13 and 0.11 %."""


def _best_point(view: View, method: str) -> tuple[float, float]:
    """Return the score in distribution and the accuracy out of it where their sum is highest."""
    inside, outside = (view.curve(method, m) for m in ("score in distribution", _OUT))
    return max(((inside[x], outside[x]) for x in inside), key=sum)


def best_points_less_wise(view: View) -> tuple[float, float]:
    """Return by how much the best point of grafts lies above WiSE-FT's, in and out of QNLI."""
    pair = replace(view, task="qnli → snli")
    if pair.task not in {one.task for one in view.tasks()}:
        raise MissingMeasurement("pair that starts at qnli")
    graft, line = (_best_point(pair, method) for method in ("grafts by density", "WiSE-FT"))
    return graft[0] - line[0], graft[1] - line[1]


def wise_graft_less_wise(view: View) -> float:
    """Return by how much WiSE-Graft's best point lies above WiSE-FT's, where MPQA was learned."""
    if not str(view.task).startswith("mpqa →"):
        raise MissingMeasurement("pair that starts at mpqa")
    return sum(_best_point(view, "WiSE-Graft")) / 2 - sum(_best_point(view, "WiSE-FT")) / 2


def lead_where_shifts_are_small(view: View) -> float:
    """Return by how much grafts are better elsewhere than fine-tuning, over two near pairs."""
    reviews, nli = "sst2_sent → imdb", "mnli → snli"

    def whole_way(method: str) -> float:
        return view(method, _OUT, task=nli, x=1.0, experiment="fig7")

    first = view("grafting", _OUT, task=reviews) - view("fine-tuning", _OUT, task=reviews)
    return (first + whole_way("WiSE-Graft") - whole_way("WiSE-FT")) / 2


def growth_of_gap(view: View) -> float:
    """Return how much more grafts are ahead elsewhere with all rows than with the fewest."""
    grafts, whole = (view.curve(method, _OUT) for method in ("grafting", "fine-tuning"))
    gaps = [grafts[rows] - whole[rows] for rows in grafts]
    return gaps[-1] - gaps[0]


def mean_from(view: View, source: str, method: str, *, x: float | None = None) -> float:
    """Return the mean accuracy elsewhere of what was learned on a task."""
    own = [one for one in view.tasks() if str(one.task).startswith(f"{source} →")]
    found = [one(method, _OUT, x=x) for one in own]
    if not found:
        raise MissingMeasurement(f"pair that starts at {source}")
    return sum(found) / len(found)


def growth_of_error(view: View) -> float:
    first, second = (view("grafting", "ECE", x=x) for x in (1e-3, 1e-2))
    return min(second - first, view("fine-tuning", "ECE") - second)


_SIMILAR = (("sst2_sent", "cr"), ("snli", "mnli"))


_CLASSES = (*_SIMILAR, ("qqp", "mrpc"), ("ag_news", "qnli"))
"""The paper's four: sentiment, inference, paraphrasing and classification."""


def _overlap(view: View, i: str, j: str, *, experiment: str | None = None) -> float:
    return view(f"region of {i}", "overlap", task=j, experiment=experiment)


def _pairs(view: View) -> list[tuple[str, str]]:
    names = [one.task for one in view.tasks() if one.task is not None]
    return [(i, j) for i in names for j in names if i != j]


def _mean(pairs: Sequence[tuple[str, str]], of: Callable[[str, str], float]) -> float:
    """Average a number over pairs that have it."""
    return fmean(_having(pairs, of))


def _having(pairs: Sequence[tuple[str, str]], of: Callable[[str, str], float]) -> list[float]:
    """Return a number of the pairs that have it; an empty region has no overlap."""
    found: list[float] = []
    for i, j in pairs:
        try:
            found.append(of(i, j))
        except MissingMeasurement:
            continue
    if not found:
        raise MissingMeasurement("number of such pairs of tasks")
    return found


def mean_overlap(view: View, *, experiment: str | None = None) -> float:
    return _mean(_pairs(view), lambda i, j: _overlap(view, i, j, experiment=experiment))


def gain(view: View, method: str, task: str, *, experiment: str | None = None) -> float:
    return view(method, "relative gain", task=task, experiment=experiment)


def _groups(view: View, *, purified: bool) -> list[tuple[str, tuple[str, ...]]]:
    """Return the unions of groups, each with its members, as the measurements' names have them."""
    found: list[tuple[str, tuple[str, ...]]] = []
    for method in view.methods("relative gain"):
        members, comma, _ = method.partition(", purified")
        if " ∪ " in members and bool(comma) == purified:
            found.append((method, tuple(members.split(" ∪ "))))
    return found


def gain_of_groups(view: View, *, inside: bool, purified: bool = False) -> float:
    """Average relative gains of unions on their groups' tasks, or on those of other classes."""
    tasks = [one.task for one in view.tasks() if one.task is not None]
    pairs: list[tuple[str, str]] = []
    for method, members in _groups(view, purified=purified):
        related = {*members, *(task for c in _CLASSES if {*c} & {*members} for task in c)}
        asked = members if inside else [task for task in tasks if task not in related]
        pairs += [(method, task) for task in asked]
    return _mean(pairs, lambda method, task: gain(view, method, task))


def _gain_of_regions(
    view: View, pairs: Sequence[tuple[str, str]], *, experiment: str | None
) -> float:
    """Return the mean gain of the first task's region on the second."""
    return _mean(pairs, lambda i, j: gain(view, f"region of {i}", j, experiment=experiment))


def gain_on_own_task(view: View, *, experiment: str | None = None) -> float:
    """Return the mean gain of regions on their own task."""
    own = [(one.task, one.task) for one in view.tasks() if one.task is not None]
    return _gain_of_regions(view, own, experiment=experiment)


def gain_on_own_task_less_others(view: View, *, experiment: str | None = None) -> float:
    """Return the mean gain of regions on their own task, less that on others."""
    others = _gain_of_regions(view, _pairs(view), experiment=experiment)
    return gain_on_own_task(view, experiment=experiment) - others


def share_helped(view: View) -> float:
    """Return the share of other tasks to which a region brings most of the gain."""
    return _mean(_pairs(view), lambda i, j: float(gain(view, f"region of {i}", j) > 0.5))


def least_gain_of_groups(view: View) -> float:
    """Return the lowest relative gain of a union on a task of its group."""
    groups = _groups(view, purified=False)
    pairs = [(method, task) for method, members in groups for task in members]
    return min(_having(pairs, lambda method, task: gain(view, method, task)))


def purification(view: View, *, inside: bool) -> float:
    """Return what purifying unions adds to their gains on their groups' tasks, or on the others."""
    plain, purified = (gain_of_groups(view, inside=inside, purified=p) for p in (False, True))
    return purified - plain


def growth_of_overlap(view: View) -> float:
    first, second, third = (
        mean_overlap(view, experiment=name) for name in ("fig8", "fig11", "fig12")
    )
    return min(second - first, third - second)


_FULL = "FullTuning"


_OF_TABLE_1 = 5e-3


_WITH_MASKS = ("MixOut", "Random", "MagPruning", "DiffPruning", "ChildPruning", "SAM", "BitFit")


def _others(view: View) -> list[str]:
    return [method for method in view.methods() if method != "SAM"]


def sam_less_best(view: View) -> float:
    """Return SAM's average score less that of the best other method."""
    return view("SAM") - max(view(method) for method in _others(view))


def deviation_of_sam_less_steadiest(view: View) -> float:
    """Return SAM's deviation less that of the steadiest other method."""
    return view.deviation("SAM") - min(view.deviation(method) for method in _others(view))


def rank_of_sam(view: View) -> float:
    """Return the rank of SAM among the methods on a task; 1 is best."""
    return float(1 + sum(view(method) > view("SAM") for method in view.methods()))


def share_significant(view: View) -> float:
    """Return the share of pairs of task and method in which SAM is better with p < 0.05."""
    found = [
        one(method, "p") < 0.05 and one(method, "mean difference") > 0
        for one in view.tasks()
        for method in one.methods("p", like="SAM against ")
    ]
    if not found:
        raise MissingMeasurement("p of SAM against others")
    return sum(found) / len(found)


def share_slower(view: View) -> float:
    """Return the share of the methods with a mask that take longer than full tuning."""
    whole = view(_FULL, "seconds")
    return view.average(_WITH_MASKS, lambda method: float(view(method, "seconds") > whole))


def _losses(view: View, when: str) -> dict[float, float]:
    return view.curve(when, "training loss")


def least_jump(view: View) -> float:
    before, after = _losses(view, "before a projection"), _losses(view, "after it")
    return min(after[step] - before[step] for step in before)


def deviation_less_table_1(view: View, density: float) -> float:
    """Return by how much SAM's deviation is larger at a density than at Table 1's."""
    there, usual = (view.deviation("SAM", "test score", x=x) for x in (density, _OF_TABLE_1))
    return there - usual


def least_way_back(view: View) -> float:
    (start,) = _losses(view, "at the start").values()
    return min(_losses(view, "after it").values()) / start


_FIXED = (1e-3, 3e-3)


def lower_lead(view: View, a: str, b: str) -> float:
    """Return a's score less b's at the fixed density where that is less."""
    return min(view(a, x=x) - view(b, x=x) for x in _FIXED)


def tasks_of_high_gain(view: View) -> float:
    """Count tasks with a relative gain of 0.9 where fine-tuning gains 5 points or more."""
    found = [
        one("re-trained graft", "relative gain") >= 0.9
        for one in view.tasks()
        if one("fine-tuning") - one("best constant answer") >= 0.05
    ]
    if not found:
        raise MissingMeasurement("task where fine-tuning gains 5 points")
    return float(sum(found))


def ece_taken_away_by_heart(view: View) -> float:
    if view("fine-tuning", "training loss") >= 0.2:
        raise MissingMeasurement("training loss below 0.2")
    return view("fine-tuning", "ECE") - view("grafting", "ECE")


def share_above_full(view: View, *, steadier: bool = False) -> float:
    """Return the share of other methods that score more than full tuning, or deviate less."""
    number = {m: -view.deviation(m) if steadier else view(m) for m in view.methods()}
    found = [value for method, value in number.items() if method != _FULL]
    if not found:
        raise MissingMeasurement("number of other methods")
    return sum(value > number[_FULL] for value in found) / len(found)


def similar_and_others(view: View, measure: str) -> float:
    """Return a region's mean measure on similar tasks, both ways, less that on all others."""
    near = {*_SIMILAR, *((j, i) for i, j in _SIMILAR)}

    def of(i: str, j: str) -> float:
        return view(f"region of {i}", measure, task=j)

    similar = _mean([pair for pair in _pairs(view) if pair in near], of)
    return similar - _mean([pair for pair in _pairs(view) if pair not in near], of)


def best_peer_less_grafts(view: View, measure: str, best: str) -> float:
    """Return a measure of the best peer, less that of the grafts nearest to it in size."""

    def less(peer: str) -> float:
        share = view(peer, "share tuned", task="any")
        nearest = min(
            view.curve("grafting", measure).items(), key=lambda at: abs(math.log(at[0] / share))
        )
        return view(peer, measure) - nearest[1]

    differences = [less(peer) for peer in _PEERS]
    return max(differences) if best == "max" else min(differences)


def peak(view: View, method: str) -> float:
    """Return the highest score of a method along the axis."""
    return max(view.curve(method).values())


def deviation(view: View, *given: str, **where: Any) -> float:
    """Return a standard deviation over seeds, averaged over tasks; see `View`."""
    return view.deviation(*given, **where)


def value(view: View, *given: str, **where: Any) -> float:
    """Return a mean over seeds, and over tasks where the view is not of one; see `View`."""
    return view(*given, **where)
