"""Claims of the SAM paper: Fu et al., 2023, https://arxiv.org/abs/2211.15583."""

from __future__ import annotations

from cl_graft.laboratory.claims.rule import Claim, Rule
from cl_graft.laboratory.claims.view import MissingReading, View

__all__ = ["SAM"]

_FULL = "FullTuning"
_REGIONS = ("Random", "MagPruning", "DiffPruning", "ChildPruning", "SAM", "BitFit")


def _others(view: View) -> list[str]:
    return [method for method in view.methods() if method != "SAM"]


def _rank(view: View) -> float:
    """Return the rank of SAM among the methods on a task; 1 is best."""
    return float(1 + sum(view(method) > view("SAM") for method in view.methods()))


def _correlation(view: View) -> float:
    """Return Spearman's rho of the ranks, 0 where it may be chance."""
    ranks = "stability rank and performance rank"
    rho, p = (view(ranks, measure, task="all") for measure in ("Spearman's rho", "p"))
    return rho if p < 0.05 else 0.0


def _share_above(view: View, number: dict[str, float]) -> float:
    """Return the share of the other methods whose number is above full tuning's."""
    others = [value for method, value in number.items() if method != _FULL]
    if not others:
        raise MissingReading("number of other methods")
    return sum(value > number[_FULL] for value in others) / len(others)


def _means(view: View) -> dict[str, float]:
    return {method: view(method) for method in view.methods()}


def _steadiness(view: View) -> dict[str, float]:
    return {method: -view.deviation(method) for method in view.methods()}


def _significant(view: View) -> float:
    """Return the share of pairs of task and method in which SAM is better with p < 0.05."""
    found = [
        one(method, "p") < 0.05 and one(method, "mean difference") > 0
        for one in view.tasks()
        for method in one.methods("p", like="SAM against ")
    ]
    if not found:
        raise MissingReading("p of SAM against others")
    return sum(found) / len(found)


def _sparse_and_full(view: View) -> float:
    """Return the mean seconds of the methods that train a region, over full tuning's."""
    return view.average(_REGIONS, lambda m: view(m, "seconds")) / view(_FULL, "seconds")


def _least_jump(view: View) -> float:
    before, after = (view.curve(m, "training loss") for m in ("before a projection", "after it"))
    return min(after[step] - before[step] for step in before)


SAM = (
    Claim(
        name="sam-sparse-beats-full",
        source="Table 1",
        words="Most parameter-efficient methods score better than full tuning.",
        paper="5 of 9 averages above 74.78",
        experiments=("sam_table1",),
        rule=Rule(
            what="share of the other methods whose average score lies higher than full tuning's",
            number=lambda v: _share_above(v, _means(v)), over="once", above=0.5, unit="%",
        ),
    ),
    Claim(
        name="sam-sparse-is-stabler",
        source="Table 1",
        words="Most parameter-efficient methods are more stable than full tuning.",
        paper="6 of 9 deviations below 2.60, averaged over the tasks",
        experiments=("sam_table1",),
        rule=Rule(
            what="share of the other methods whose deviation lies lower than full tuning's",
            number=lambda v: _share_above(v, _steadiness(v)), over="once", above=0.5, unit="%",
        ),
    ),
    Claim(
        name="sam-random-beats-full",
        source="Table 1",
        words="Even random sparse tuning scores better than full tuning.",
        paper="said in the text; its Table 1 has 74.55 against 74.78, Table 2 74.83 against 74.81",
        experiments=("sam_table1",),
        rule=Rule(
            what="average score of Random − of full tuning",
            number=lambda v: v("Random") - v(_FULL), over="once", above=0.0,
        ),
    ),
    Claim(
        name="sam-is-best",
        source="Table 1",
        words="SAM has the best average score.",
        paper="77.12; the next is Adapter with 76.03",
        experiments=("sam_table1",),
        rule=Rule(
            what="average score of SAM − of the best other method",
            number=lambda v: v("SAM") - max(v(m) for m in _others(v)), over="once", above=0.0,
        ),
    ),
    Claim(
        name="sam-ranks-high",
        source="Table 1",
        words="SAM ranks among the first three on most tasks.",
        paper="5 of 7 tasks",
        experiments=("sam_table1",),
        rule=Rule(what="rank of SAM", number=_rank, share=0.51, most=3.0, unit=""),
    ),
    Claim(
        name="sam-beats-random",
        source="Table 1",
        words="Choosing by the accumulated gradient is better than choosing at random.",
        paper="77.12 against 74.55",
        experiments=("sam_table1",),
        rule=Rule(
            what="score of SAM − of Random", number=lambda v: v("SAM") - v("Random"), over="mean",
            above=0.0,
        ),
    ),
    Claim(
        name="sam-projections-lose",
        source="Table 1",
        words="Regions of methods that project, DiffPruning and ChildPruning, do worse than SAM's.",
        paper="72.65 and 74.93 against 77.12, projecting while they train",
        experiments=("sam_table1",),
        rule=Rule(
            what="score of SAM − of the better of the two",
            number=lambda v: v("SAM") - max(v("DiffPruning"), v("ChildPruning")), over="mean",
            above=0.0,
        ),
    ),
    Claim(
        name="sam-perturbed",
        source="Table 2",
        words="SAM scores best, too, where a tenth of the training rows is left out.",
        paper="76.40; the next is LoRA with 75.46",
        experiments=("sam_table2",),
        rule=Rule(
            what="average score of SAM − of the best other method",
            number=lambda v: v("SAM") - max(v(m) for m in _others(v)), over="once", above=0.0,
        ),
    ),
    Claim(
        name="sam-perturbed-stable",
        source="Table 2",
        words="It is the steadiest there.",
        paper="deviation 1.96; the next is MagPruning with 2.27",
        experiments=("sam_table2",),
        rule=Rule(
            what="deviation of SAM − of the steadiest other method",
            number=lambda v: v.deviation("SAM") - min(v.deviation(m) for m in _others(v)),
            over="once", most=0.0,
        ),
    ),
    Claim(
        name="sam-costs-more",
        source="Table 3",
        words="Methods that train a region take longer than full tuning, as masks save no work.",
        paper="SAM 2.02 h against 1.67 h, which stop early",
        experiments=("sam_table3",),
        rule=Rule(
            what="seconds of those six, finding the region with it, / of full tuning, for as many "
            "steps",
            number=_sparse_and_full, over="mean", above=1.0, unit="",
        ),
    ),
    Claim(
        name="sam-adapters-cost-less",
        source="Table 3",
        words="Adapters take less time than full tuning.",
        paper="1.59 h against 1.67 h; LoRA, of which it says the same, 1.97 h",
        experiments=("sam_table3",),
        rule=Rule(
            what="seconds of adapters / of full tuning", number=lambda v: v("Adapter", "seconds")
            / v(_FULL, "seconds"),
            over="mean", most=1.0, unit="",
        ),
    ),
    Claim(
        name="sam-significant",
        source="Table 5",
        words="SAM is significantly better than most other methods.",
        paper="36 of 63 pairs in Table 5",
        experiments=("sam_table5",),
        rule=Rule(
            what="share of pairs of task and method in which SAM is better with p < 0.05",
            number=_significant, over="once", above=0.5, unit="%",
        ),
    ),
    Claim(
        name="sam-significant-perturbed",
        source="Table 6",
        words="So it is where a tenth of the training rows is left out.",
        paper="28 of 63 pairs in Table 6",
        experiments=("sam_table6",),
        rule=Rule(
            what="share of pairs of task and method in which SAM is better with p < 0.05",
            number=_significant, over="once", least=0.4, unit="%",
        ),
    ),
    Claim(
        name="sam-projections-jump",
        source="Fig. 3",
        words="The training loss jumps back at each projection.",
        paper="a figure: every 600 steps",
        experiments=("sam_fig3",),
        rule=Rule(
            what="least over the projections: training loss after one − before it",
            number=_least_jump, above=0.0, unit="",
        ),
    ),
    Claim(
        name="sam-stable-is-good",
        source="Fig. 4",
        words="Stabler methods score better: the ranks correlate.",
        paper="a positive Spearman coefficient, p < 0.05",
        experiments=("sam_fig4",),
        rule=Rule(
            what="Spearman's rho of stability rank and performance rank, 0 where p ≥ 0.05,",
            number=_correlation, over="once", above=0.0, unit="",
        ),
    ),
    Claim(
        name="sam-too-sparse",
        source="Fig. 5",
        words="Below a certain density the score drops sharply.",
        paper="a figure: 0.0002 to 0.2",
        experiments=("sam_fig5",),
        rule=Rule(
            what="test score at 0.005, Table 1's density, − that at 0.0002",
            number=lambda v: v("SAM", "test score", x=5e-3) - v("SAM", "test score", x=2e-4),
            over="mean", least=0.05,
        ),
    ),
    Claim(
        name="sam-all-seven-tasks",
        source="Table 1",
        words="SAM has the best average over all seven tasks, RTE and CB among them.",
        paper="77.12; the next is Adapter with 76.03",
        experiments=("sam_table1",),
        rule=Rule(
            what="average score of SAM − of the best other method",
            number=lambda v: v("SAM") - max(v(m) for m in _others(v)), over="once", above=0.0,
        ),
        unavailable="RTE and CB are not in the data",
    ),
)  # fmt: skip
"""Tables 1 to 6 and Figs. 3 to 5."""
