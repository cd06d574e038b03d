"""Claims of the grafting paper about several tasks in one multi-task model.

Panigrahi et al., 2023, https://arxiv.org/abs/2302.06600; numbers are those of its tables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean

from papers.claims.rule import Claim, Rule
from papers.claims.view import MissingReading, View

__all__ = ["SEVERAL_TASKS"]

_SIMILAR = (("sst2_sent", "cr"), ("snli", "mnli"))
_CLASSES = (*_SIMILAR, ("qqp", "mrpc"), ("ag_news", "qnli"))
"""The paper's four: sentiment, inference, paraphrasing and classification."""

_EIGHT = ("SST-2", "CR", "SNLI", "MNLI", "QQP", "MRPC", "AG News", "QNLI")


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
        except MissingReading:
            continue
    if not found:
        raise MissingReading("number of such pairs of tasks")
    return found


def _mean_overlap(view: View, *, experiment: str | None = None) -> float:
    return _mean(_pairs(view), lambda i, j: _overlap(view, i, j, experiment=experiment))


def _similar_and_others(view: View, of: Callable[[str, str], float]) -> float:
    """Return a mean over similar pairs, both ways, less that over all other pairs."""
    near = {*_SIMILAR, *((j, i) for i, j in _SIMILAR)}
    pairs = _pairs(view)
    similar = _mean([pair for pair in pairs if pair in near], of)
    return similar - _mean([pair for pair in pairs if pair not in near], of)


def _gain(view: View, method: str, task: str, *, experiment: str | None = None) -> float:
    return view(method, "relative gain", task=task, experiment=experiment)


def _groups(view: View, *, purified: bool) -> list[tuple[str, tuple[str, ...]]]:
    """Return the unions of groups, each with its members, as the readings' names have them."""
    found: list[tuple[str, tuple[str, ...]]] = []
    for method in view.methods("relative gain"):
        members, comma, _ = method.partition(", purified")
        if " ∪ " in members and bool(comma) == purified:
            found.append((method, tuple(members.split(" ∪ "))))
    return found


def _gain_of_groups(view: View, *, inside: bool, purified: bool = False) -> float:
    """Average relative gains of unions on their groups' tasks, or on those of other classes."""
    tasks = [one.task for one in view.tasks() if one.task is not None]
    pairs: list[tuple[str, str]] = []
    for method, members in _groups(view, purified=purified):
        related = {*members, *(task for c in _CLASSES if {*c} & {*members} for task in c)}
        asked = members if inside else [task for task in tasks if task not in related]
        pairs += [(method, task) for task in asked]
    return _mean(pairs, lambda method, task: _gain(view, method, task))


def _gain_of_regions(
    view: View, pairs: Sequence[tuple[str, str]], *, experiment: str | None
) -> float:
    """Return the mean gain of the first task's region on the second."""
    return _mean(pairs, lambda i, j: _gain(view, f"region of {i}", j, experiment=experiment))


def _own(view: View, *, experiment: str | None = None) -> float:
    """Return the mean gain of regions on their own task."""
    own = [(one.task, one.task) for one in view.tasks() if one.task is not None]
    return _gain_of_regions(view, own, experiment=experiment)


def _own_and_others(view: View, *, experiment: str | None = None) -> float:
    """Return the mean gain of regions on their own task, less that on others."""
    others = _gain_of_regions(view, _pairs(view), experiment=experiment)
    return _own(view, experiment=experiment) - others


def _helped(view: View) -> float:
    """Return the share of other tasks to which a region brings most of the gain."""
    return _mean(_pairs(view), lambda i, j: float(_gain(view, f"region of {i}", j) > 0.5))


def _least_of_groups(view: View) -> float:
    """Return the lowest relative gain of a union on a task of its group."""
    groups = _groups(view, purified=False)
    pairs = [(method, task) for method, members in groups for task in members]
    return min(_having(pairs, lambda method, task: _gain(view, method, task)))


def _purification(view: View, *, inside: bool) -> float:
    """Return what purifying unions adds to their gains on their groups' tasks, or on the others."""
    plain, purified = (_gain_of_groups(view, inside=inside, purified=p) for p in (False, True))
    return purified - plain


def _growth(view: View) -> float:
    first, second, third = (
        _mean_overlap(view, experiment=name) for name in ("fig8", "fig11", "fig12")
    )
    return min(second - first, third - second)


SEVERAL_TASKS = (
    Claim(
        name="regions-hardly-overlap",
        source="Fig. 8a",
        words="Regions of different tasks in a multi-task model overlap very little.",
        paper=f"a figure ({', '.join(_EIGHT)})",
        experiments=("fig8",),
        rule=Rule(
            what="mean overlap of two tasks", number=_mean_overlap, over="once", most=0.2, unit="%",
        ),
    ),
    Claim(
        name="similar-tasks-overlap-more",
        source="Fig. 8a",
        words="Similar tasks overlap more: SST-2 and CR, SNLI and MNLI.",
        paper="a figure",
        experiments=("fig8",),
        rule=Rule(
            what="overlap of similar tasks − of others",
            number=lambda v: _similar_and_others(v, lambda i, j: _overlap(v, i, j)),
            over="once", above=0.0,
        ),
    ),
    Claim(
        name="regions-isolate",
        source="Fig. 8b",
        words="The graft of one task helps that task.",
        paper="a figure",
        experiments=("fig8",),
        rule=Rule(
            what="relative gain of a region on its own task", number=_own, over="once", least=0.5,
            unit="%",
        ),
    ),
    Claim(
        name="regions-help-few",
        source="Fig. 8b",
        words="The graft of one task helps few others.",
        paper="a figure",
        experiments=("fig8",),
        rule=Rule(
            what="share of other tasks on which a region has a relative gain of over a half",
            number=_helped, over="once", most=0.2, unit="%",
        ),
    ),
    Claim(
        name="mrpc-helps-qqp",
        source="Sec. 5.1",
        words="MRPC's region helps QQP.",
        paper="a figure",
        experiments=("fig8",),
        rule=Rule(
            what="relative gain", number=lambda v: _gain(v, "region of mrpc", "qqp"), over="once",
            least=0.5, unit="%",
        ),
    ),
    Claim(
        name="qqp-does-not-help-mrpc",
        source="Sec. 5.1",
        words="QQP's region does not help MRPC.",
        paper="a figure",
        experiments=("fig8",),
        rule=Rule(
            what="relative gain", number=lambda v: _gain(v, "region of qqp", "mrpc"), over="once",
            most=0.2, unit="%",
        ),
    ),
    Claim(
        name="regions-transfer",
        source="Fig. 8b",
        words="Similar tasks help each other.",
        paper="a figure",
        experiments=("fig8",),
        rule=Rule(
            what="relative gain of a region on similar tasks − on others",
            number=lambda v: _similar_and_others(v, lambda i, j: _gain(v, f"region of {i}", j)),
            over="once", above=0.0,
        ),
    ),
    Claim(
        name="unions-compose",
        source="Fig. 8c",
        words="The union of a group's regions keeps about 70 % of the gain on its tasks.",
        paper="“around 70 %”",
        experiments=("fig8",),
        rule=Rule(
            what="relative gain of unions on their tasks",
            number=lambda v: _gain_of_groups(v, inside=True), over="once", least=0.7, unit="%",
        ),
    ),
    Claim(
        name="unions-compose-everywhere",
        source="Fig. 8c",
        words="The union of a group's regions keeps at least 70 % on each of its tasks.",
        paper="“all values higher than 0.7”",
        experiments=("fig8",),
        rule=Rule(
            what="lowest relative gain of a union on a task of its group",
            number=_least_of_groups, over="once", least=0.7, unit="%",
        ),
    ),
    Claim(
        name="unions-help-no-others",
        source="Fig. 8c",
        words="The union of a group's regions does not help unrelated tasks.",
        paper="“and related tasks, but not for other tasks”",
        experiments=("fig8",),
        rule=Rule(
            what="relative gain of unions on tasks of other classes",
            number=lambda v: _gain_of_groups(v, inside=False), over="once", most=0.2, unit="%",
        ),
    ),
    Claim(
        name="ten-steps-purify",
        source="Fig. 8d",
        words="Ten joint steps raise a union's gain on its tasks.",
        paper="“even higher”",
        experiments=("fig8",),
        rule=Rule(
            what="relative gain on their tasks, purified unions − unions as they are",
            number=lambda v: _purification(v, inside=True), over="once", above=0.0,
        ),
    ),
    Claim(
        name="purified-unions-compose",
        source="Fig. 8d",
        words="Ten joint steps raise a union's gain on its tasks to about 80 %.",
        paper="“around 80 %”",
        experiments=("fig8",),
        rule=Rule(
            what="relative gain of purified unions on their tasks",
            number=lambda v: _gain_of_groups(v, inside=True, purified=True), over="once",
            least=0.8, unit="%",
        ),
    ),
    Claim(
        name="purifying-leaves-others-alone",
        source="Sec. 5.1, Fig. 8d",
        words="Ten joint steps do not affect tasks outside the union's group by much.",
        paper="“without affecting gains for other tasks by much”",
        experiments=("fig8",),
        rule=Rule(
            what="relative gain on tasks of other classes, purified unions and unions as they are, "
            "apart by",
            number=lambda v: abs(_purification(v, inside=False)), over="once", most=0.1,
        ),
    ),
    Claim(
        name="several-tasks-in-one-model",
        source="Sec. 5.1",
        words="The multi-task model scores about as well as models of single tasks.",
        paper="“comparable”",
        experiments=("fig8", "table2"),
        rule=Rule(
            what="score of the multi-task model − of the fine-tuned one",
            number=lambda v: v("whole model") - v("fine-tuning", experiment="table2"),
            over="mean", least=-0.02,
        ),
    ),
    Claim(
        name="larger-bases-overlap-more",
        source="Figs. 11, 12",
        words="Overlap grows with the share of most moved coordinates that a mask starts from.",
        paper="a figure: bases of 0, 0.001 and 0.01 %",
        experiments=("fig8", "fig11", "fig12"),
        rule=Rule(
            what="least growth of the mean overlap from one base to the next", number=_growth,
            over="once", above=0.0,
        ),
    ),
    Claim(
        name="larger-bases-isolate-less",
        source="Figs. 11, 12",
        words="From the largest base, too, a graft helps its own task most.",
        paper="“a similar pattern”",
        experiments=("fig12",),
        rule=Rule(
            what="relative gain of a region on its own task − on others",
            number=_own_and_others, over="once", least=0.2,
        ),
    ),
    Claim(
        name="larger-bases-blur",
        source="Figs. 11, 12",
        words="From the largest base a graft helps its task less clearly than from an empty one.",
        paper="“albeit diminishing”",
        experiments=("fig8", "fig12"),
        rule=Rule(
            what="relative gain of a region on its own task − on others, from an empty base − from "
            "the largest one",
            number=lambda v: _own_and_others(v) - _own_and_others(v, experiment="fig12"),
            over="once", above=0.0,
        ),
    ),
    Claim(
        name="adamw-localizes-several-tasks",
        source="Fig. 13",
        words="By AdamW without an L1 penalty, too, regions of different tasks overlap little.",
        paper="a figure: “small overlap”",
        experiments=("fig13",),
        rule=Rule(
            what="mean overlap of two tasks", number=_mean_overlap, over="once", most=0.2, unit="%",
        ),
    ),
    Claim(
        name="adamw-isolates-several-tasks",
        source="Fig. 13",
        words="By AdamW without an L1 penalty, too, the graft of one task helps that task.",
        paper="a figure: “only perform well on similar tasks”",
        experiments=("fig13",),
        rule=Rule(
            what="relative gain of a region on its own task", number=_own, over="once", least=0.5,
            unit="%",
        ),
    ),
    Claim(
        name="adamw-helps-few",
        source="Fig. 13",
        words="By AdamW without an L1 penalty, too, the graft of one task helps few others.",
        paper="a figure: “only perform well on similar tasks”",
        experiments=("fig13",),
        rule=Rule(
            what="share of other tasks on which a region has a relative gain of over a half",
            number=_helped, over="once", most=0.2, unit="%",
        ),
    ),
    Claim(
        name="l1-changes-little-there",
        source="Fig. 14",
        words="An L1 penalty on AdamW's movement changes little in a model of several tasks.",
        paper="a figure",
        experiments=("fig14", "fig13"),
        rule=Rule(
            what="relative gain of a region on its own task − on others, with the penalty against "
            "without, apart by",
            number=lambda v: abs(_own_and_others(v) - _own_and_others(v, experiment="fig13")),
            over="once", most=0.1,
        ),
    ),
)  # fmt: skip
"""Figs. 8, 11 to 14."""
